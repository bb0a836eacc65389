from pydantic import BaseModel

import prompty


class Person(BaseModel):
    name: str
    age: int


person = prompty.invoke("extract.prompty", {"text": "Ada is 36."}, output_type=Person)
print(person.name, person.age)
