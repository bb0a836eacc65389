import os

import prompty
from prompty.providers import Provider, register_provider
from prompty.providers.http.transports import Transports
from prompty.providers.endpoint import create_endpoint
from prompty.providers.openai import chat

URL = os.environ.get("ACME_URL", "https://api.acme.example/v1")


def find_endpoint(agent):
    return create_endpoint(URL, {"authorization": f"Bearer {os.environ['ACME_KEY']}"})


transports = Transports(find_endpoint)
PROVIDER = Provider(
    key="acme",
    apis={"chat": chat.API},
    transport=transports.get,
    transport_async=transports.get_async,
)
register_provider("acme", PROVIDER)

if __name__ == "__main__":
    print(prompty.invoke("answer.prompty"))
