import prompty


def pay(amount: int) -> str:
    print("paid", amount)
    return f"paid {amount}"


def at_most_50(calls):
    return [call.arguments["amount"] <= 50 or prompty.deny("too much") for call in calls]


print(prompty.turn("bank.prompty", {"question": "Pay my two bills."}, tools=[pay], gate=at_most_50))
