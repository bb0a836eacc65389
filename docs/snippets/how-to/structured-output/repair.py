from pydantic import BaseModel

import prompty
from prompty.errors import ResultError


class Person(BaseModel):
    name: str
    age: int


inputs = {"text": "Grace is 85."}
try:
    prompty.invoke("extract.prompty", inputs, output_type=Person)
except ResultError as error:
    print("invoke:", str(error).splitlines()[0])

print("turn:", prompty.turn("extract.prompty", inputs, output_type=Person))
