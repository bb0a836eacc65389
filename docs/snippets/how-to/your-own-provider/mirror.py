import prompty
from prompty.providers import register_executor, register_processor


class Executor:
    def execute(self, agent, messages):
        return {"words": messages[-1].text.split()}

    async def execute_async(self, agent, messages):
        return self.execute(agent, messages)


class Processor:
    def process(self, agent, response):
        return " ".join(reversed(response["words"]))

    async def process_async(self, agent, response):
        return self.process(agent, response)


register_executor("mirror", Executor())
register_processor("mirror", Processor())
print(prompty.invoke("mirror.prompty"))
