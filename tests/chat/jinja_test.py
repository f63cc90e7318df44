#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares chat templates with the Python package jinja2, set as spec and publishers set it, on generated templates:
every text that jinja2 renders is rendered to the same characters. Where it raises, tinfer may also be more lenient; and
tinfer may raise, now and then, where jinja2 makes a generator that would raise but never looks at it.

usage: jinja_test.py tinfer_render_lines quick|slow
"""
import copy
import datetime
import json
import random
import subprocess
import sys
import warnings

try:
    import jinja2
    from jinja2.ext import Extension, loopcontrols
except ImportError:
    print("no package jinja2: skipped")
    sys.exit(77)

warnings.simplefilter("ignore")   # the generated expressions are often silly
COUNT = {"quick": 1500, "slow": 20000}


class Generation(Extension):
    """{% generation %}: a mark of training templates, rendered as it stands."""
    tags = {"generation"}

    def parse(self, parser):
        parser.stream.skip(1)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


def environment():
    env = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation])

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env.filters["tojson"] = tojson
    env.globals["strftime_now"] = lambda form: datetime.datetime(2026, 3, 9, 14, 5, 7).strftime(form)
    return env


INPUTS = {
    "s": "Hello <World>, it's \u00fcn\u00ef \u00dfcool\n next Line ", "n": 7, "f": 2.5, "l": [3, 1, 2, "b", "A"],
    "m": {"k": 1, "Z": "z", "a": [1, 2], "items": 5}, "b": True, "x": "", "t": "a,b,,c",
    "msgs": [{"role": "user", "content": 'Hi "you"'}, {"role": "assistant", "content": None, "tool_calls": [{"f": 1}]},
             {"role": "user", "content": ["p", {"type": "text", "text": "tt"}]}],
}
NAMES = ["s", "n", "f", "l", "m", "b", "u", "msgs", "x", "t"]
FILTERS = """upper lower title capitalize trim length list string tojson first last sort unique reverse sum min max int
 float abs round wordcount items dictsort escape safe join default count d e striptags urlencode pprint center indent
 truncate wordwrap filesizeformat xmlattr forceescape""".split()
SLICES = ["0", "-1", "'k'", "1:", "::-1", ":2", "-2:", "1:-1", "::2", "5"]
FILTER_CALLS = [
    "join(', ')", "join('-')", "default('d')", "default('d',true)", "replace('a','B')", "replace('l','LL',1)",
    "indent(2)",
    "indent(3,true)", "indent(2,true,true)", "truncate(5)", "truncate(8,true)", "truncate(9,false,'.')", "round(1)",
    "round(2,'ceil')", "round(0,'floor')", "int(3)", "int(0,16)", "batch(2)", "batch(2,'-')", "slice(2)",
    "slice(3,'x')",
    "sort(reverse=true)", "sort(case_sensitive=true)", "map('upper')", "map('string')", "map(attribute='role')",
    "map(attribute='x',default='q')", "select('string')", "reject('number')", "selectattr('role','equalto','user')",
    "selectattr('role')", "rejectattr('content')", "groupby('role')", "tojson(indent=2)", "tojson(ensure_ascii=true)",
    "tojson(sort_keys=true)", "tojson(separators=(',',':'))", "dictsort(true)", "dictsort(false,'value')",
    "unique(true)",
    "sum(start=5)", "format(1,2)", "format('z')", "center(12)", "wordwrap(6)", "trim('H ')", "min(case_sensitive=true)",
    "attr('role')", "select('odd')", "filesizeformat(true)", "float(1.5)",
]
METHODS = [
    "upper()", "lower()", "title()", "strip()", "split()", "split(',')", "split(',',1)", "rsplit(' ',1)",
    "startswith('H')",
    "endswith(('x','z'))", "replace('l','L')", "find('l')", "count('l')", "strip('Hb ')", "lstrip()", "rstrip()",
    "capitalize()", "splitlines()", "isdigit()", "join(['a','b'])", "format(1,'z')", "items()", "keys()", "values()",
    "get('k')", "get('zz','dd')", "append(4)", "pop()", "index(1)", "zfill(6)", "partition(',')", "rjust(9,'*')",
    "isalpha()", "isupper()", "swapcase()", "removeprefix('H')", "rfind('l')", "format(n=3)",
]
TESTS = [
    "defined", "undefined", "none", "string", "number", "mapping", "iterable", "sequence", "boolean", "integer",
    "float", "true",
    "false", "callable", "odd", "even", "divisibleby(2)", "divisibleby 3", "equalto(1)", "eq 'abc'", "in [1,2,'abc']",
    "sameas none", "lower", "upper", "gt 1", "ne 2", "filter", "test",
]
CALLS = [
    "range(4)|list", "range(1,8,3)|list", "range(5,0,-2)|list", "dict(a=1,b=n)", "mac(n)", "mac(s,b=2)", "mac()",
    "loop.index",
    "ns.v", "loop.last", "strftime_now('%d %b %Y %j %U %V')", "m.items()|list", "'%s|%5.2f|%-4d|'%(s,f,n)",
    "'{:>5}|{:.3f}|{:,}'.format(n,f,100000)",
]
LITERALS = [
    "'abc'", '"x\\ny"', "'Ab cD-ef'", "' pad '", "''", "'\u00e9<b>'", "'%s-%d'", "'{} {}'", "'a,b'", "','", "0", "1",
    "2", "-1", "10",
    "3", "100", "1.5", "0.1", "2.0", "-0.25", "1e20", "3.14159", "true", "false", "none", "[1,2,3]", "['b','a','C']",
    "[]", "(1,2)",
    "[[1,'a'],[2,'b']]", "{'a':1,'b':[2]}", "{}",
]


class Generator:
    def __init__(self, seed):
        self.pick = random.Random(seed)

    def one(self, words):
        return self.pick.choice(words)

    def expression(self, depth=0):
        kind = self.pick.randrange(22) if depth <= 3 else 0
        inner = lambda: self.expression(depth + 1)
        if kind < 3:
            return self.one(LITERALS)
        if kind < 5:
            return self.one(NAMES)
        if kind < 7:
            return f"({inner()} {self.one('+ - * / // % ~ ~ ~ +'.split())} {inner()})"
        if kind == 7:
            return f"({inner()} {self.one(['==', '!=', '<', '>', '<=', '>=', 'in', 'not in'])} {inner()})"
        if kind == 8:
            return f"({inner()} {self.one(['and', 'or'])} {inner()})"
        if kind == 9:
            return f"(not {inner()})"
        if kind == 10:
            return f"({inner()} if {inner()} else {inner()})"
        if kind < 14:
            return f"({inner()})|{self.one(FILTERS + FILTER_CALLS)}"
        if kind < 16:
            return f"({inner()}).{self.one(METHODS)}"
        if kind == 16:
            return f"({inner()} is {self.one(TESTS)})"
        if kind == 17:
            # slices of names only: jinja2 folds those of literals, with other rules
            return f"({self.one(NAMES)})[{self.one(SLICES)}]"
        if kind == 18:
            return f"({inner()}).{self.one(['k', 'role', 'content', 'zz', 'items', 'a', 'f'])}"
        if kind == 19:
            return self.one(CALLS)
        if kind == 20:
            return f"(-{inner()})"
        return f"({inner()} is not {self.one(TESTS)})"

    def space(self):
        return self.one(["", " ", "\n", "\n  ", "  \n", " text ", "\t"])

    def tag(self, text):
        return f"{self.one(['{%', '{%-', '{%', '{%+'])} {text} {self.one(['%}', '-%}', '%}', '+%}'])}"

    def statement(self, depth=0):
        kind = self.pick.randrange(16) if depth <= 2 else 0
        body = lambda: "".join(self.statement(depth + 1) for _ in range(self.pick.randrange(1, 3)))
        tag, space, expression = self.tag, self.space, self.expression
        if kind < 5:
            return f"{space()}{self.one(['{{', '{{-'])} {expression()} {self.one(['}}', '-}}'])}{space()}"
        if kind == 5:
            return f"{tag('if ' + expression())}{space()}{body()}{tag('else')}{body()}{tag('endif')}{space()}"
        if kind == 6:
            values = self.one(["l", "msgs", "m", "t", "range(3)", "s[:4]", "u", expression()])
            return (f"{tag('for i in ' + values)}{space()}{{{{ loop.index0 }}}}{{{{ i }}}}"
                    f"{body()}{tag('endfor')}{space()}")
        if kind == 7:
            return f"{tag('for k, v in m.items()')}{space()}{{{{ k ~ v }}}}{body()}{tag('endfor')}{space()}"
        if kind == 8:
            return f"{tag('set ' + self.one(['x', 'y', 'ns.v', 's']) + ' = ' + expression())}{space()}"
        if kind == 9:
            return f"{tag('set y')}{body()}{tag('endset')}{{{{ y }}}}"
        if kind == 10:
            return "{# c " + space() + self.one(["#}", "-#}"]) + space()
        if kind == 11:
            return (f"{tag('for i in l if i is ' + self.one(TESTS))}{{{{ i }}}}{{{{ ',' if not loop.last }}}}"
                    f"{tag('else')}none{tag('endfor')}")
        if kind == 12:
            return f"{tag('macro mac(a, b=3)')}{space()}{{{{ a ~ b }}}}{body()}{tag('endmacro')}{space()}"
        if kind == 13:
            return (f"{tag('for i in [1,2,3,4]')}{tag('if i is odd')}{tag('continue')}{tag('endif')}"
                    f"{{{{ i }}}}{tag('break')}{tag('endfor')}")
        if kind == 14:
            return f"{tag('with y = ' + expression())}{{{{ y }}}}{tag('endwith')}"
        return f"{tag('filter ' + self.one(FILTERS[:8]))}{body()}{tag('endfilter')}"

    def template(self):
        return ("{% set ns = namespace(v=0) %}" + "".join(self.statement() for _ in range(self.pick.randrange(1, 4))) +
                self.one(["", "\n", "\n\n"]))


def rendered(env, source):
    try:
        return env.from_string(source).render(**copy.deepcopy(INPUTS))
    except Exception:   # whatever Python raises: the template has no text
        return None


def main():
    program, size = sys.argv[1], sys.argv[2]
    env, generator = environment(), Generator(20260309)
    sources = [generator.template() for _ in range(COUNT[size])]
    tasks = "".join(json.dumps({"template": source, "inputs": INPUTS}) + "\n" for source in sources)
    answers = subprocess.run([program], input=tasks, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(answers) == len(sources), "an answer is missing"
    compared = different = stricter = 0
    for source, line in zip(sources, answers):
        expected, answer = rendered(env, source), json.loads(line)
        # raised, or printed an address or a view
        if expected is None or "0x" in expected.lower() or "dict_" in expected.lower():
            continue
        compared += 1
        if answer.get("text") == expected:
            continue
        if "error" in answer:
            stricter += 1
            continue
        different += 1
        if different <= 9:
            print("template:", repr(source), "jinja2: ", repr(expected), "tinfer: ", repr(answer), "", sep="\n")
    print(f"{compared} rendered templates compared, {different} differ, {stricter} are refused")
    return 1 if different or compared < len(sources) // 5 or stricter > compared // 40 else 0


if __name__ == "__main__":
    sys.exit(main())
