def is_polite(answer, inputs):
    return True if inputs["name"] in answer else "it doesn't use the name"
