"""What is written from facts/models.yaml is fresh: the data of the package and the page about it."""

from prompty.providers.facts import VALUES
from scripts import write_model_facts
from scripts.write_model_pages import PAGE, TITLES, build_page


def test_the_data_of_the_package_is_fresh() -> None:
    assert write_model_facts.TARGET.read_text(encoding="utf-8") == write_model_facts.write(), "run: make docs"


def test_the_page_of_facts_is_fresh() -> None:
    assert PAGE.read_text(encoding="utf-8") == build_page(), "run: make docs"


def test_the_page_of_facts_has_every_host_and_every_fact() -> None:
    assert {row["host"] for row in write_model_facts.load()["models"]} == TITLES.keys()
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in VALUES if f"\n| `{name}` | " not in page] == []
