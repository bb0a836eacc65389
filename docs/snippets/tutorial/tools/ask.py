import prompty
from shop import find_books, order_book

question = "Two books about dragons, please."
answer = prompty.turn("shop.prompty", {"question": question}, tools=[find_books, order_book])
print(answer)
