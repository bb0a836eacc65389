from pydantic import BaseModel

import prompty


class Wish(BaseModel):
    topic: str
    copies: int


message = "Two books about dragons, please."
wish = prompty.invoke("wish.prompty", {"message": message}, output_type=Wish)
print(wish.copies, "about", wish.topic)
