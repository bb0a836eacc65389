import prompty

picture = prompty.Image.from_file("circle.png")
print(prompty.invoke("describe.prompty", {"picture": picture}))
