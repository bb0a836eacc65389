import prompty
from prompty.viewer import find_traces, read_trace

prompty.trace_to("file:traces")
prompty.invoke("greet.prompty", {"name": "Ada"})
read_trace(find_traces("traces")[0])
