import prompty

for file in ("news.prompty", "news-claude.prompty"):
    print(prompty.turn(file, {"topic": "Example"}))
