import prompty
import prompty.azure
from prompty.tracer import PromptyTracer, Tracer, console_tracer, trace

Tracer.add("console", console_tracer)
Tracer.add("files", PromptyTracer("runs").tracer)


@trace
def answer(question):
    return prompty.execute("answer.prompty", inputs={"question": question})


print(answer("What is a monad?"))
