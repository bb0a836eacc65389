"""The coverage figures add up, and a package below its floor fails the check."""

from scripts.coverage_figures import FLOORS, Figure, find_low, sum_packages


def measured(covered: int, statements: int) -> dict[str, dict[str, int]]:
    return {"summary": {"covered_lines": covered, "num_statements": statements}}


def test_files_of_a_package_are_summed_and_modules_stand_alone() -> None:
    files = {
        "src/prompty/wire/json.py": measured(3, 4),
        "src/prompty/wire/deep/more.py": measured(6, 6),
        "src\\prompty\\wire\\windows.py": measured(0, 10),
        "src/prompty/errors.py": measured(1, 1),
    }
    assert sum_packages(files) == {"wire": Figure(9, 20), "errors": Figure(1, 1)}


def test_a_package_below_its_floor_is_named() -> None:
    figures = {package: Figure(100, 100) for package in FLOORS}
    assert find_low(figures) == []
    assert find_low({**figures, "wire": Figure(1, 2)}) == [f"wire has 50.0 % and needs {FLOORS['wire']} %"]


def test_a_package_that_was_renamed_is_not_forgotten() -> None:
    figures = {package: Figure(100, 100) for package in FLOORS if package != "loop"}
    assert find_low(figures) == ["loop has no figure: was it renamed?"]


def test_an_empty_package_is_covered() -> None:
    assert Figure(0, 0).percent == 100
