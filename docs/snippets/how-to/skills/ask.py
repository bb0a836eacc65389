import prompty

print(prompty.turn("letters.prompty"))
