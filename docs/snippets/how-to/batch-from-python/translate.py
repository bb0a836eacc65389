import prompty

rows = [{"text": "Good morning."}, {"text": "Good night."}, {"words": "Oops."}]
for row in prompty.batch("translate.prompty", rows):
    if row.error is None:
        print(row.value, row.result.usage.output_tokens, "tokens")
    else:
        print("failed:", type(row.error).__name__)
