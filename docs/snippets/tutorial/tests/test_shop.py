import prompty
import shop
from prompty.testing import Script, call

TOOLS = [shop.find_books, shop.order_book]
QUESTION = {"question": "Three copies of Moby-Dick, please."}


def test_an_approved_order_is_placed():
    shop.ORDERS.clear()
    with Script(call("order_book", title="Moby-Dick", copies=3), "Done."):
        paused = prompty.turn("shop.prompty", QUESTION, tools=TOOLS)
        answer = prompty.resume(prompty.load("shop.prompty"), paused, [True], tools=TOOLS)
    assert answer == "Done."
    assert shop.ORDERS == [("Moby-Dick", 3)]


def test_nothing_is_ordered_without_approval():
    shop.ORDERS.clear()
    with Script(call("order_book", title="Moby-Dick", copies=3)):
        paused = prompty.turn("shop.prompty", QUESTION, tools=TOOLS)
    assert [pending.name for pending in paused.pending] == ["order_book"]
    assert shop.ORDERS == []


def test_the_model_reads_the_titles_of_the_shop():
    with Script(call("find_books", topic="ships"), "We have Moby-Dick.") as script:
        prompty.turn("shop.prompty", QUESTION, tools=TOOLS)
    assert script.requests[1]["messages"][-1]["content"] == '["Moby-Dick"]'
