"""A Jinja2 template cannot take minutes or gigabytes, and ordinary work is not refused (R6, SECURITY.md).

Every hostile template answers within a second and 100 MB; those that can be refused before any work is done answer
within 50 ms.
"""

import time
import tracemalloc
from contextlib import suppress

import pytest
from jinja2 import Environment

from prompty.errors import RenderError
from prompty.renderers.jinja2 import compile_template, jinja2_renderer
from tests.machine import time_factor

BUDGET = 0.05
PATIENCE = 1.0
TRIES = 5
MEGABYTES_100 = 100 * 2**20

PRICED_FILTERS = frozenset(
    """abs attr batch capitalize center count d default dictsort e escape filesizeformat first float forceescape format
    groupby indent int items join last length list lower map max min pprint random reject rejectattr replace reverse
    round safe select selectattr slice sort string striptags sum title tojson trim truncate unique upper urlencode
    urlize wordcount wordwrap xmlattr""".split()  # noqa: SIM905  one name per word
)


def answered(template: str, within: float) -> RenderError | str:
    """Return the text or the error of a template. Fail if all tries take more than `within` CPU seconds."""
    seconds: list[float] = []
    while len(seconds) < TRIES:
        start = time.process_time()
        try:
            answer: RenderError | str = jinja2_renderer(template, {})
        except RenderError as error:
            answer = error
        seconds.append(time.process_time() - start)
        if seconds[-1] < within or seconds[-1] < within * time_factor():
            return answer
    pytest.fail(f"took {min(seconds):.3f} s: {answer}")


def doubling(start: str, change: str, use: str = "") -> str:
    """Return a template that changes `ns.x` sixty times."""
    return f"{{% set ns = namespace(x={start}) %}}{{% for i in range(60) %}}{change}{{% endfor %}}{use}"


def looped(expression: str, rounds: int = 90_000, before: str = "") -> str:
    """Return a template that evaluates one expression many times."""
    return f"{before}{{% for i in range({rounds}) %}}{{% set y = {expression} %}}{{% endfor %}}"


def nested(inner: str) -> str:
    return f"{{% for i in range(100000) %}}{{% for j in range(100000) %}}{inner}{{% endfor %}}{{% endfor %}}"


CHARACTERS, STEPS = "more than 4,000,000 characters", "more than 2,000,000 steps"
PARTS, BITS, DEEP = "a value of more than 100,000 parts", "a number of more than 4096 bits", "too deep"

REFUSED = {
    "half a gigabyte of x": ("{{ 'x'*500000000 }}", CHARACTERS),
    "half a gigabyte, the other way round": ("{{ 500000000*'x' }}", CHARACTERS),
    "a long list": ("{{ [0]*500000000 }}", PARTS),
    "a wide number": ("{{ '%1000000000d'|format(1) }}", CHARACTERS),
    "a wide number with an operator": ("{{ '%1000000000d' % 1 }}", CHARACTERS),
    "a wide number by a test": ("{{ '%1000000000d' is odd }}", CHARACTERS),
    "a wide number by another test": ("{{ '%1000000000d' is divisibleby(3) }}", CHARACTERS),
    "a wide number by a test of many": ("{{ ['%1000000000d']|select('even')|list }}", CHARACTERS),
    "a precise number": ("{{ '%.1000000000f'|format(1) }}", CHARACTERS),
    "a width as an argument": ("{{ '%*d'|format(1000000000, 1) }}", CHARACTERS),
    "a width after a long key": ("{{ ('%(' ~ 'a'*300 ~ ')1000000000d') % {'a'*300: 1} }}", "a format key"),
    "a width after a key with brackets": ("{{ '%(a(b)c)1000000000d' % {'a(b)c': 1} }}", "a format key"),
    "one value many times": ("{{ '%(a)s'*1000 % {'a': 'x'*4000000} }}", CHARACTERS),
    "one named value many times": ("{{ ('%(a)s'*1000)|format(a='x'*4000000) }}", CHARACTERS),
    "nested loops": (nested(""), STEPS),
    "nested loops with text": (nested("x"), STEPS),
    "nested loops with a variable": (nested("{{ j }}"), STEPS),
    "nested loops with the loop": (nested("{{ loop.last }}"), STEPS),
    "nested loops with a condition": (nested("{% if j > i %}{% endif %}"), STEPS),
    "nested loops that keep nothing": (
        "{% for i in range(100000) %}{% for j in range(100000) if j > 200000 %}{% endfor %}{% endfor %}",
        STEPS,
    ),
    "a loop over a long text": ("{% for c in 'x'*4000000 %}{% endfor %}", STEPS),
    "a macro that calls itself twice": (
        "{% macro m(n) %}{% if n %}{{ m(n-1) }}{{ m(n-1) }}{% endif %}{% endmacro %}{{ m(40) }}",
        STEPS,
    ),
    "a macro that calls itself without end": ("{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}", DEEP),
    "a macro with a loop that calls itself": (
        "{% macro m(n) %}{% for i in range(n) %}{{ m(n-1) }}{% endfor %}{% endmacro %}{{ m(100) }}",
        STEPS,
    ),
    "a block that writes itself": ("{% block a %}{{ self.a() }}{{ self.a() }}{% endblock %}", DEEP),
    "a recursive loop": ("{% for i in [1] recursive %}{{ loop([1, 1]) }}{% endfor %}", DEEP),
    "a recursive loop with an end": (
        "{% for i in [1] recursive %}{% if loop.depth < 40 %}{{ loop([1, 1]) }}{% endif %}{% endfor %}",
        STEPS,
    ),
    "a wide recursive loop": (
        "{% for i in [1] recursive %}{% if loop.depth < 4 %}{{ loop(range(100000)) }}{% endif %}{% endfor %}",
        STEPS,
    ),
    "text doubled with ~": (doubling("'x'", "{% set ns.x = ns.x ~ ns.x %}"), CHARACTERS),
    "text doubled with +": (doubling("'x'", "{% set ns.x = ns.x + ns.x %}"), CHARACTERS),
    "text doubled with %": (doubling("'x'", "{% set ns.x = '%s%s' % (ns.x, ns.x) %}"), CHARACTERS),
    "text doubled with a block set": (doubling("'x'", "{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}"), CHARACTERS),
    "text doubled with a filter block": (
        doubling("'x'", "{% set ns.x %}{% filter upper %}{{ ns.x }}{{ ns.x }}{% endfilter %}{% endset %}"),
        CHARACTERS,
    ),
    "text doubled with a macro": (
        doubling("'x'", "{% macro m() %}{{ ns.x }}{{ ns.x }}{% endmacro %}{% set ns.x = m() %}"),
        CHARACTERS,
    ),
    "a list doubled": (doubling("[1]", "{% set ns.x = ns.x + ns.x %}"), PARTS),
    "a tuple doubled": (doubling("(1,)", "{% set ns.x = ns.x + ns.x %}"), PARTS),
    "a list in itself, written": (doubling("[1]", "{% set ns.x = [ns.x, ns.x] %}", "{{ ns.x }}"), PARTS),
    "a dict in itself, written": (doubling("{}", "{% set ns.x = {'a': ns.x, 'b': ns.x} %}", "{{ ns.x }}"), PARTS),
    "a list in itself, formatted": (doubling("[1]", "{% set ns.x = [ns.x, ns.x] %}", "{{ '{}'.format(ns.x) }}"), PARTS),
    "a list in itself, joined": (doubling("[1]", "{% set ns.x = [ns.x, ns.x] %}", "{{ ns.x|join }}"), PARTS),
    "a list in itself, as JSON": (doubling("[1]", "{% set ns.x = [ns.x, ns.x] %}", "{{ ns.x|tojson }}"), PARTS),
    "a list in itself, tested": (doubling("[1]", "{% set ns.x = [ns.x, ns.x] %}", "{{ ns.x is lower }}"), PARTS),
    "a tuple in itself, as a key": (doubling("(1,)", "{% set ns.x = (ns.x, ns.x) %}", "{{ {ns.x: 1} }}"), PARTS),
    "a tuple in itself, looked up": (doubling("(1,)", "{% set ns.x = (ns.x, ns.x) %}", "{{ {}[ns.x] }}"), PARTS),
    "a tuple in itself, got": (doubling("(1,)", "{% set ns.x = (ns.x, ns.x) %}", "{{ {}.get(ns.x) }}"), PARTS),
    "a number squared": (doubling("3", "{% set ns.x = ns.x * ns.x %}", "{{ ns.x }}"), BITS),
    "a number squared with **": (doubling("3", "{% set ns.x = ns.x ** 2 %}", "{{ ns.x }}"), BITS),
    "a chain of powers": ("{{ 2**9**9**9**9 }}", BITS),
    "a power of a power": ("{{ 9**(9**(9**9)) }}", BITS),
    "a large power": ("{{ 10**100000000 }}", BITS),
    "a number of many hexadecimal digits": ("{{ ('f'*4000000)|int(base=16) % 3 }}", CHARACTERS),
    "a number of some hexadecimal digits": ("{{ ('f'*2000)|int(base=16) }}", BITS),
    "rounding to a billion digits": ("{{ 1.5|round(1000000000, 'ceil') }}", CHARACTERS),
    "rounding to a billion digits before the point": ("{{ 5|round(-1000000000) }}", CHARACTERS),
    "ljust": ("{{ 'x'.ljust(1000000000) }}", CHARACTERS),
    "rjust": ("{{ 'x'.rjust(1000000000) }}", CHARACTERS),
    "center as a method": ("{{ 'x'.center(1000000000) }}", CHARACTERS),
    "center of safe text": ("{{ ('x'|safe).center(1000000000) }}", CHARACTERS),
    "zfill": ("{{ 'x'.zfill(1000000000) }}", CHARACTERS),
    "zfill in a loop": ("{% for i in [1] %}{{ 'x'.zfill(1000000000) }}{% endfor %}", CHARACTERS),
    "format as a method": ("{{ '{:1000000000}'.format(1) }}", CHARACTERS),
    "format with a width as an argument": ("{{ '{:{}}'.format(1, 1000000000) }}", CHARACTERS),
    "format with a precision": ("{{ '{:.1000000000f}'.format(1.5) }}", CHARACTERS),
    "format of one value many times": ("{{ ('{0}'*1000).format('x'*4000000) }}", CHARACTERS),
    "format of a long path": ("{{ ('{0' ~ '.real'*10000 ~ '}').format(1) }}", CHARACTERS),
    "format of many fields": ("{{ ('{}'*1900000).format(1) }}", PARTS),
    "percent signs": ("{{ '%s'*1900000 % 1 }}", PARTS),
    "format_map": ("{{ '{a:1000000000}'.format_map({'a': 1}) }}", CHARACTERS),
    "replace as a method": ("{{ ('x'*4000).replace('x', 'y'*4000000) }}", CHARACTERS),
    "replace of nothing as a method": ("{{ ('x'*4000).replace('', 'y'*4000) }}", CHARACTERS),
    "join as a method": ("{{ ('x'*4000).join('y'*4000) }}", CHARACTERS),
    "expandtabs": ("{{ '\t'.expandtabs(1000000000) }}", CHARACTERS),
    "the filter center": ("{{ 'x'|center(1000000000) }}", CHARACTERS),
    "the filter indent": ("{{ ('x\n'*1000)|indent(1000000) }}", CHARACTERS),
    "the filter indent with text": ("{{ ('x\n'*1000)|indent('y'*10000) }}", CHARACTERS),
    "the filter indent and other line ends": ("{{ ('x\r'*1000)|indent(1000000) }}", CHARACTERS),
    "the filter indent of the first line": ("{{ 'x'|indent(1000000000, true) }}", CHARACTERS),
    "the filter replace": ("{{ ('x'*4000)|replace('x', 'y'*4000000) }}", CHARACTERS),
    "the filter join": ("{{ range(10000)|join('x'*4000) }}", CHARACTERS),
    "the filter join of a map": ("{{ range(1000)|map('string')|join('x'*40000) }}", CHARACTERS),
    "the filter join of long texts": ("{{ range(1000)|map('string')|map('center', 3000000)|join }}", STEPS),
    "the filter wordwrap": ("{{ ('x '*1000)|wordwrap(1, true, 'y'*10000) }}", CHARACTERS),
    "the filter wordwrap and one long word": ("{{ ('x'*1000000)|wordwrap(2) }}", STEPS),
    "the filter tojson": ("{{ [1]|tojson(indent=1000000000) }}", CHARACTERS),
    "the filter tojson and a deep list": (
        "{% set ns = namespace(x=[1]*1000) %}{% for i in range(300) %}{% set ns.x = [ns.x] %}{% endfor %}"
        "{{ ns.x|tojson(indent=100) }}",
        CHARACTERS,
    ),
    "the filter batch": ("{{ [1]|batch(1000000000, 'x')|list }}", CHARACTERS),
    "the filter slice": ("{{ [1]|slice(1000000000)|list }}", CHARACTERS),
    "the filter sum of lists": ("{{ ([[1]]*40000)|sum(start=[]) }}", STEPS),
    "the filter list of a long text": ("{{ ('x'*4000000)|list }}", PARTS),
    "the filter xmlattr": ("{{ {'a': ['x'*3000000]*1000}|xmlattr }}", CHARACTERS),
    "the filter urlize and dots": ("{{ ('.'*100000 ~ 'a.')|urlize }}", STEPS),
    "the filter urlize and a long target": ("{{ ('www.a.com '*1000)|urlize(target='x'*100000) }}", CHARACTERS),
    "the filter pprint": ("{{ ('a '*1900000)|pprint }}", STEPS),
    "the filter pprint and a deep list": (
        doubling("'x'*100000", "{% set ns.x = [ns.x] %}", "{{ ns.x|pprint }}"),
        STEPS,
    ),
    "the filter striptags": ("{{ ('<!---->'*500000)|striptags }}", STEPS),
    "the filter title": ("{{ ('ab '*1300000)|title }}", STEPS),
    "the filter wordcount": ("{{ ('ab '*1300000)|wordcount }}", STEPS),
    "the filter trim and many characters": ("{{ ('a'*1900000)|trim('b'*1900000 ~ 'a') }}", STEPS),
    "strip and many characters": ("{{ ('a'*1900000).strip('b'*1900000 ~ 'a') }}", STEPS),
    "the filter sort of a long list": ("{{ range(99000)|sort }}", STEPS),
    "the filter groupby of a long list": ("{{ range(99000)|groupby('real') }}", STEPS),
    "the filter map and a long path": ("{{ range(9000)|map(attribute='a.'*9000, default={})|list }}", STEPS),
    "searching backwards": ("{{ ('a'*2000000).rfind('a'*1000 ~ 'b' ~ 'a'*1000) }}", STEPS),
    "splitting a long text": ("{{ ('ab '*1300000).split() }}", STEPS),
    "the values of a dict": ("{{ {'a': ['x'*3000000]*1000}.values() }}", CHARACTERS),
    "safe texts in a list": ("{{ [('x'*3000000)|safe]*1000 }}", CHARACTERS),
    "a cycler": ("{% set c = cycler('x'*4000000) %}" + looped("c.next()"), STEPS),
    "a joiner": ("{% set j = joiner('x'*4000000) %}" + looped("j()"), STEPS),
    "many arguments": (looped("cycler(*range(90000))"), STEPS),
    "many arguments of a macro": (
        "{% macro m() %}{{ varargs|length }}{% endmacro %}" + looped("m(*range(90000))"),
        STEPS,
    ),
    "dicts out of dicts": (looped("dict(d, a=1)", before="{% set d = {}.fromkeys(range(9000)) %}"), STEPS),
    "upper case, many times": (looped("s|upper", before="{% set s = 'x'*4000000 %}"), STEPS),
    "upper case as a method, many times": (looped("s.upper()", before="{% set s = 'x'*4000000 %}"), STEPS),
    "a search, many times": (looped("'ab' in s", before="{% set s = 'x'*1000000 %}"), STEPS),
    "a search in a range, many times": (looped("'x' in r", before="{% set r = range(90000) %}"), STEPS),
    "counting in a range, many times": (looped("range(90000).count('x')"), STEPS),
    "a comparison, many times": (looped("s == t", before="{% set s = 'x'*4000000 %}{% set t = 'x'*4000000 %}"), STEPS),
    "a chained comparison, many times": (
        looped("s <= t <= s", before="{% set s = 'x'*4000000 %}{% set t = 'x'*4000000 %}"),
        STEPS,
    ),
    "a slice, many times": (looped("s[1:]", before="{% set s = 'x'*4000000 %}"), STEPS),
    "a format, many times": (looped("'%3900000d' % 1"), STEPS),
    "a search that finds nothing, many times": (looped("range(90000)|reject('number')|first"), STEPS),
    "a long body": ("{% for i in range(100000) %}" + "{{ u }}" * 100 + "{% endfor %}", STEPS),
    "a long text in a loop": ("{% for i in range(100000) %}" + "x" * 1000 + "{% endfor %}", STEPS),
    "a price that is no number": (looped("[1]|batch('nan'|float)|list", 3) + nested(""), STEPS),
    "a price below nothing": (looped("'x'|center(-10**15)", 3) + nested(""), STEPS),
    "deep parentheses": ("{{ " + "(" * 50000 + "1" + ")" * 50000 + " }}", DEEP),
    "deep brackets": ("{{ " + "[" * 50000 + "1" + "]" * 50000 + " }}", DEEP),
    "many minus signs": ("{{ " + "-" * 5000 + "1 }}", DEEP),
    "a long sum": ("{{ 1" + "+1" * 1000 + " }}", DEEP),
    "a long path": ("{{ a" + ".b" * 1000 + " }}", DEEP),
    "nested conditions": ("{% if 1 %}" * 500 + "{% endif %}" * 500, DEEP),
    "a number of too many digits": ("{{ " + "9" * 5000 + " }}", "4300 digits"),
    "a list of wide numbers": ("{{ range(0, 99000 * 2**61, 2**61)|list }}", "numbers of more than 64 bits"),
    "wide numbers in the template": ("{{ [" + "18446744073709551616," * 101 + "] }}", "numbers of more than 64 bits"),
    "many parts as arguments": ("{{ cycler(*('😀' * 3900000)) }}", STEPS),
    "many parts as arguments of a filter": ("{{ 'x'|replace(*('😀' * 3900000)) }}", STEPS),
    "a deep tuple as a key": (
        "{% set ns = namespace(t=()) %}{% for i in range(600) %}{% set ns.t = (ns.t,) %}{% endfor %}{{ {ns.t: 1} }}",
        DEEP,
    ),
}


@pytest.mark.timing
@pytest.mark.parametrize(("template", "cause"), REFUSED.values(), ids=REFUSED)
def test_a_template_that_asks_for_too_much_is_refused_at_once(template: str, cause: str) -> None:
    answer = answered(template, within=BUDGET)
    assert isinstance(answer, RenderError)
    assert cause in answer.cause


EXPENSIVE = {
    "loops in loops": (
        "{% for i in range(1000) %}{% for j in range(1000) %}{% for k in range(1000) %}"
        "{{ k }}{% endfor %}{% endfor %}{% endfor %}"
    ),
    "filters": looped("'a'|upper|lower|trim"),
    "methods": looped("'a'.upper().lower().strip()"),
    "comparisons": looped("i < j", before="{% set j = 1 %}"),
    "concatenations": looped("i ~ i ~ i"),
    "additions": looped("i + i + i + i"),
    "keys": looped("d[i]", before="{% set d = {} %}"),
    "attributes": looped("i.real.imag.numerator"),
    "macros": "{% macro m() %}{% endmacro %}" + looped("m()", 10_000),
    "a long macro": "{% macro m() %}" + "{% if u %}{% endif %}" * 100 + "{% endmacro %}" + looped("m()", 40_000),
    "slices of a short list": looped("[1]|slice(9000)|list"),
    "callers": (
        "{% macro m() %}{% for i in range(100) %}{{ caller() }}{% endfor %}{% endmacro %}"
        "{% call m() %}{% call m() %}{% call m() %}x{% endcall %}{% endcall %}{% endcall %}"
    ),
    "maps": looped("range(10)|map('abs')|list", 2_000),
    "sorting": looped("range(9000)|sort", 1000),
    "large lower case": looped("('ŉ'*3000000).upper()", 1000),
    "splitting and joining": looped("s.split(',')|join(';')", 10_000, "{% set s = 'ab,'*30000 %}"),
    "lists of lists": looped("a == b", 90_000, "{% set a = [[1]*9000]*10 %}{% set b = [[1]*9000]*10 %}"),
    "a list in a list": looped("a in b", 90_000, "{% set a = [1]*9000 %}{% set b = [[1]*9000 + [2]]*9000 %}"),
    "a list in what a filter gives": "{% set a = [1]*40000 %}{{ a in ([a + [2]]*1000)|select }}",
    "a number made of differences": (
        "{% set ns = namespace(x=3) %}" + "{% for i in range(9000) %}{% set ns.x = ns.x - (0 - ns.x) %}{% endfor %}"
    ),
    "a search for what nearly matches": looped(
        "s.find(t)", 2_000, "{% set s = 'a'*29000 %}{% set t = 'a'*49 ~ 'b' ~ 'a'*49 %}"
    ),
    "attributes of many numbers": looped("range(900)|max(attribute='real')", 2_000),
    "a path of a format": looped("f.format(1)", 2_000, "{% set f = '{0' ~ '.real'*4000 ~ '}' %}"),
    "wordwrap": "{{ ('x '*120000)|wordwrap|length }}",
    "urlize": "{{ ('www.a.com '*3000)|urlize|length }}",
    "pprint": "{{ (['x'*20]*9000)|pprint|length }}",
    "tojson": "{{ ([{'a': '<'}]*9000)|tojson(indent=2)|length }}",
    "escape": "{{ ('<'*4000000)|e }}",
    "urlencode": looped("s|urlencode", 1000, "{% set s = 'é'*90000 %}"),
    "urlencode of a dict": looped("d|urlencode", 1000, "{% set d = {}.fromkeys(range(9000)) %}"),
    "a deep tuple as a key": (
        "{% set ns = namespace(t=()) %}{% for i in range(5000) %}{% set ns.t = (ns.t,) %}{% endfor %}{{ {ns.t: 1} }}"
    ),
    "differences of keys": looped("d.keys() - d", 9_000, "{% set d = {}.fromkeys(range(9000)) %}"),
    "differences of items": looped("d.items() - d.items()", 9_000, "{% set d = {}.fromkeys(range(9000)) %}"),
    "a range without some keys": looped("r - d.keys()", 9_000, "{% set d = {1: 1} %}{% set r = range(90000) %}"),
    "the filter sum of lists in a dict": "{{ {}.fromkeys(range(33000), [1, 2]).values()|sum(start=[])|length }}",
    "the filter sum of attributes": "{{ ([{'a': [1, 2]}]*24000)|sum(attribute='a', start=[])|length }}",
    "a short search for what nearly matches": looped(
        "t in s", 9_000, "{% set s = 'a'*2400 %}{% set t = 'a'*500 ~ 'b' ~ 'a'*500 %}"
    ),
    "numbers with one hash": "{{ {}.fromkeys(range(0, 99000 * (2**61-1), 2**61-1))|length }}",
    "numbers with one hash, made unique": "{{ range(0, 60000 * (2**61-1), 2**61-1)|unique|list|length }}",
    "many named fields": looped("('%(a)s'*30000) % {'a': 1}", 9_000),
    "many numbered fields": looped("('{0}'*90000).format(1)", 9_000),
    "comments without text": looped("s|striptags", 900, "{% set s = '<!---->'*30000 %}"),
    "dicts put together as text": looped("d ~ d", 9_000, "{% set d = {}.fromkeys(range(9000)) %}"),
    "a large list as a test": looped("a is in([a])", 9_000, "{% set a = [0]*99000 %}"),
    "attributes that are not there": "{% for i in range(9000) %}" + "{% if i.q %}{% endif %}" * 100 + "{% endfor %}",
    "JSON of small values": looped("i|tojson", 60_000),
}


@pytest.mark.timing
@pytest.mark.parametrize("template", EXPENSIVE.values(), ids=EXPENSIVE)
def test_no_template_takes_longer_than_a_second(template: str) -> None:
    answered(template, within=PATIENCE)


def held(expression: str, before: str = "") -> str:
    """Return a template that keeps every value it makes."""
    keep = f"{{% set ns.l = [ns.l, {expression}] %}}"
    return f"{before}{{% set ns = namespace(l=[]) %}}{{% for i in range(10000) %}}{keep}{{% endfor %}}"


HELD = {
    "long texts": held("'x'*3900000"),
    "long texts of wide characters": held("'😀'*3900000"),
    "texts that end differently": held("s ~ i", "{% set s = 'x'*3900000 %}"),
    "escaped texts": held("(''|safe) + s", "{% set s = '<'*700000 %}"),
    "long lists": held("[0]*99000"),
    "parts of a text": held("s.split()", "{% set s = 'ab '*33000 %}"),
    "numbers": held("range(90000)|list"),
    "filled batches": held("[1]|batch(490000, 1)|first"),
    "slices of a list": held("l[1:]", "{% set l = [0]*99000 %}"),
    "dicts": held("dict(d)", "{% set d = {}.fromkeys(range(30000)) %}"),
    "differences of keys": held("d.keys() - []", "{% set d = {}.fromkeys(range(99000)) %}"),
    "sets": held("s.union(range(90000))", "{% set s = {1: 1}.keys() - [] %}"),
    "slices of a wide text": held("s[1:]", "{% set s = '😀'*3900000 %}"),
    "wide characters, joined": held("','.join(s)", "{% set s = '😀a '*600000 %}"),
    "wide numbers, joined": held("range(0, 99000 * 2**3000, 2**3000)|join"),
    "a wide text in a URL": held("s|urlencode", "{% set s = '😀'*3900000 %}"),
    "what a macro writes": held("m()", "{% macro m() %}" + "x" * 10000 + "{% endmacro %}"),
    "what is set": "{% set ns = namespace(l=[]) %}{% for i in range(10000) %}{% set t %}"
    + "x" * 10000
    + "{% endset %}{% set ns.l = [ns.l, t] %}{% endfor %}",
}


@pytest.mark.parametrize("template", HELD.values(), ids=HELD)
def test_no_template_takes_more_than_100_megabytes(template: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(RenderError, match="asks for"):
            jinja2_renderer(template, {})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MEGABYTES_100


def names(count: int, pattern: str) -> str:
    """Return a part of a template with a name of its own each time."""
    return "".join(pattern.format(number) for number in range(count))


SLOW_TO_COMPILE = {
    "many variables": "{{a}}" * 100_000,
    "many names and conditions": names(3_000, "{{%set a{}=1%}}") + "{%if a%}{%endif%}" * 3_000,
    "more names and conditions": names(10_000, "{{%set a{}=1%}}") + "{%if a%}{%endif%}" * 10_000,
    "names and conditions, as many as are allowed": names(740, "{{%set a{}=1%}}") + "{%if a%}{%endif%}" * 740,
    "nested loops and many variables": "{%for i in a%}" * 19 + names(20_000, "{{{{a{}}}}}") + "{%endfor%}" * 19,
    "very deep loops": "{%for i in a%}" * 150 + names(2_500, "{{{{a{}}}}}") + "{%endfor%}" * 150,
    "loops as deep as is allowed": "{%for i in a%}" * 10 + names(3_000, "{{{{a{}}}}}") + "{%endfor%}" * 10,
    "many deep expressions": ("{{ " + "not " * 60 + "a }}") * 140,
    "many comments": "{##}" * 900_000,
    "many raw blocks": "{%raw%}{%endraw%}" * 200_000,
    "many lines": "\n" * 4_000_000,
    "a number of a million digits": "{{ " + "1" * 1_000_000 + " }}",
    "a number of four million digits": "{{ 0x" + "f" * 4_000_000 + " }}",
    "a text of escapes": '{{ "' + "\\\\" * 2_000_000 + '" }}',
    "many named arguments": "{{ f(" + ",".join(f"a{number}=1" for number in range(10_000)) + ") }}",
}


@pytest.mark.timing
@pytest.mark.parametrize("template", SLOW_TO_COMPILE.values(), ids=SLOW_TO_COMPILE)
def test_compiling_takes_no_longer_than_a_second(template: str) -> None:
    answered(template, within=PATIENCE)


BULKY = ["many variables", "many lines", "a number of a million digits", "a number of four million digits"]
BULKY += ["a text of escapes", "many named arguments"]


@pytest.mark.parametrize("template", [SLOW_TO_COMPILE[name] for name in BULKY], ids=BULKY)
def test_compiling_takes_no_more_than_100_megabytes(template: str) -> None:
    compile_template.cache_clear()
    tracemalloc.start()
    try:
        with suppress(RenderError):
            jinja2_renderer(template, {})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MEGABYTES_100


PLAIN_JINJA2 = Environment(keep_trailing_newline=True)  # noqa: S701  a prompt is no HTML
MEGABYTE = "some words and a newline\n" * 40_000
ROWS = [{"id": n, "name": f"name {n}", "tags": ["a", "b"], "on": n % 2 == 0} for n in range(10_000)]

ORDINARY: dict[str, tuple[str, dict[str, object]]] = {
    "a megabyte of text": ("{{ text }}", {"text": MEGABYTE}),
    "a megabyte joined": ("{{ parts|join('\n') }}", {"parts": ["x" * 99] * 10_000}),
    "a megabyte joined by a method": ("{{ '\n'.join(parts) }}", {"parts": ["x" * 99] * 10_000}),
    "a megabyte put together": ("{{ a ~ b }}", {"a": "x" * 500_000, "b": "y" * 500_000}),
    "a megabyte indented": ("{{ text|indent(4) }}", {"text": MEGABYTE}),
    "a megabyte in upper case, trimmed": ("{{ text|upper|trim }}", {"text": MEGABYTE}),
    "a megabyte searched": ("{% if needle in text %}x{% endif %}", {"text": MEGABYTE, "needle": "newline"}),
    "the start of ten megabytes": ("{{ text[:100] }}", {"text": MEGABYTE * 10}),
    "a megabyte in lines": ("{% for line in text.splitlines() %}{{ line }}{% endfor %}", {"text": MEGABYTE}),
    "a loop of 10,000 items": ("{% for n in range(10000) %}{{ n }}\n{% endfor %}", {}),
    "a loop of 100,000 items": ("{% for n in range(100000) %}x{% endfor %}", {}),
    "a table of 100,000 cells": (
        "{% for r in range(1000) %}{% for c in range(100) %}| {% endfor %}\n{% endfor %}",
        {},
    ),
    "a rich loop of 10,000 items": (
        "{% for row in rows %}{% if row.on %}{{ loop.index }}. {{ row.name|title }} ({{ row.tags|join(', ') }})\n"
        "{% else %}- {{ row.name|upper }}{% if not loop.last %}\n{% endif %}{% endif %}{% endfor %}",
        {"rows": ROWS},
    ),
    "a macro for each of 10,000 items": (
        "{% macro line(row) %}{{ row.name }}\n{% endmacro %}{% for row in rows %}{{ line(row) }}{% endfor %}",
        {"rows": ROWS},
    ),
    "10,000 items as JSON": ("{{ rows|map(attribute='name')|list|tojson(indent=2) }}", {"rows": ROWS}),
    "rows as JSON": ("{{ rows[:5000]|tojson(indent=2) }}", {"rows": ROWS}),
    "10,000 items chosen and sorted": (
        "{{ rows|selectattr('on')|map(attribute='name')|sort|length }}",
        {"rows": ROWS},
    ),
    "10,000 items looked up": (
        "{% for row in rows %}{% if row.name in known %}x{% endif %}{{ known.get(row.name) }}{% endfor %}",
        {"rows": ROWS, "known": {row["name"]: "y" for row in ROWS}},
    ),
    "the length of 10,000 items, in a loop over them": (
        "{% for row in rows %}{% if loop.index == rows|length %}x{% endif %}{% endfor %}",
        {"rows": ROWS},
    ),
    "100 kB with 1 kB put in": (
        "{{ text|replace('@', new) }}",
        {"text": "x" * 99_999 + "@", "new": "y" * 1000},
    ),
    "100 kB with 1 kB put in many times": (
        "{{ text|replace('@', new) }}",
        {"text": ("x" * 999 + "@") * 100, "new": "y" * 1000},
    ),
    "200 kB in a URL": ("{{ text|urlencode }}", {"text": "a b/é" * 40_000}),
    "100 kB wrapped": ("{{ text|wordwrap(79) }}", {"text": "some words " * 9_000}),
    "a text put together in 1,000 rounds": (
        "{% set ns = namespace(t='') %}{% for n in range(1000) %}"
        "{% set ns.t = ns.t ~ 'a line of the text\n' %}{% endfor %}{{ ns.t }}",
        {},
    ),
    "a list put together in 1,000 rounds": (
        "{% set ns = namespace(l=[]) %}{% for n in range(1000) %}"
        "{% set ns.l = ns.l + [n] %}{% endfor %}{{ ns.l|join(',') }}",
        {},
    ),
    "a template of 900 kB": ("some words " * 80_000 + "{{ a }}", {"a": 1}),
    "a template of 2,000 variables": ("some words {{ a }}\n" * 2_000, {"a": 1}),
    "a template of 1,000 conditions": ("{% if a == 'b' %}x{% endif %}" * 1_000, {"a": "b"}),
    "ten nested loops": ("{% for a in [1] %}" * 10 + "x" + "{% endfor %}" * 10, {}),
    "100 ids in a list of 1,000": ("{% for n in ids[:100] %}{{ n in ids }}{% endfor %}", {"ids": list(range(1_000))}),
    "a number of 64 bits for each row": ("{{ ids|unique|join(',') }}", {"ids": [2**60 + n for n in range(5_000)]}),
    "a wide column": ("{{ 'x'.ljust(1000) }}{{ '%1000s' % 'x' }}{{ '{:1000}'.format('x') }}", {}),
}


@pytest.mark.parametrize(("template", "inputs"), ORDINARY.values(), ids=ORDINARY)
def test_ordinary_work_is_not_refused(template: str, inputs: dict[str, object]) -> None:
    assert jinja2_renderer(template, inputs) == PLAIN_JINJA2.from_string(template).render(inputs)


def test_each_render_has_a_budget_of_its_own() -> None:
    template = "{% for i in range(100000) %}x{% endfor %}"
    assert {len(jinja2_renderer(template, {})) for _ in range(5)} == {100_000}


def test_an_input_may_be_longer_than_the_limit_of_what_a_template_writes() -> None:
    long = "x" * 10_000_000
    assert jinja2_renderer("{{ text }}", {"text": long}) == long
    with pytest.raises(RenderError, match=CHARACTERS):
        jinja2_renderer("{{ text }}{{ text }}", {"text": long})
    with pytest.raises(RenderError, match=CHARACTERS):
        jinja2_renderer("{{ text|upper }}", {"text": long})


def test_a_refusal_says_what_to_do() -> None:
    with pytest.raises(RenderError, match="Simplify the template"):
        jinja2_renderer("{{ 'x'*500000000 }}", {})


def test_every_filter_of_jinja2_was_looked_at_when_its_price_was_set() -> None:
    filters = set(Environment().filters)  # noqa: S701  nothing is rendered
    unpriced = filters - PRICED_FILTERS
    assert not unpriced, "Jinja2 has new filters: measure what they cost, and add them here."
