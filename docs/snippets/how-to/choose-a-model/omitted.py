import prompty
from prompty.testing import Script

with Script("Drops on the roof."):
    result = prompty.invoke("poem.prompty", details=True)
print(result.omitted)
