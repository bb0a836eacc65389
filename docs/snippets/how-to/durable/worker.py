from functions import pay
from prompty.durable import Worker

if __name__ == "__main__":
    Worker("sqlite:///runs.db", tools=[pay]).run()
