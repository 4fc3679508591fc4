"""Small templates that each exercise a construct; generate.py records what Jinja2 makes of them."""

CONTEXT = {
    "name": "Ada",
    "text": "  Hello, Wörld! ß  ",
    "words": "the quick  brown\tfox\njumps",
    "empty": "",
    "nothing": None,
    "yes": True,
    "no": False,
    "n": 7,
    "neg": -3,
    "x": 2.5,
    "big": 1e22,
    "small": 1.5e-7,
    "whole": 3.0,
    "items_": [3, 1, 2],
    "mixed": ["b", "A", "c", "a"],
    "nested": [[1, 2], [3, [4]]],
    "d": {"b": 1, "a": [1, "two", None, True], "C": {"k": 2.0}, "items": "shadow"},
    "people": [
        {"name": "Zoe", "age": 30, "tags": ["x"], "addr": {"city": "Oslo"}},
        {"name": "adam", "age": 25, "tags": [], "addr": {"city": "bern"}},
        {"name": "Bea", "age": 30, "addr": {}},
    ],
    "uni": "naïve café 日本語 🎉 e\u0301",
    "quote": "it's \"q\" \\ \n\t\x07\u200b",
    "html": "<a href='x'>&</a>",
    "lines": "one\r\ntwo\n\nthree",
    "schema": {"type": "object", "properties": {"é": {"type": "string", "enum": ["a", "b"]}}, "required": [], "n": 1.0},
}

EXPRESSIONS = r"""
name
text
nothing
yes
n + 1
n - 10
n * 3
n / 2
n // 2
neg // 2
n % 3
neg % 5
n % neg
2 ** 10
2 ** -1
2 ** 3 ** 2
-2 ** 2
-n
+n
--n
x * 2
x // 1
-x // 1
-x % 2
7.5 % -2
1 / 3
10 / 5
big
small
whole
1e16
123456789012345680.0
1e15
0.1 + 0.2
1e-5
0.0001
1_000
0x1f + 0b11 + 0o17
1_0.5
1 + 2.0
true + true
1 == 1.0
1 == true
'1' == 1
none == none
undefined_a == undefined_b
1 < 2 < 3
1 < 3 < 2
1 < n <= 7 != 8
'a' < 'b'
'Z' < 'a'
[1, 2] < [1, 3]
[1] < [1, 0]
(1, 2) == (1, 2)
(1, 2) == [1, 2]
{'a': 1} == {'a': 1.0}
1 < 'a'
none < 1
'a' in 'abc'
'' in 'abc'
1 in [1, 2]
1.0 in [1, 2]
'a' not in ['b']
'b' in d
'items' in d
3 in range(5)
none in [none]
1 in 'abc'
'a' in none
'a' in undefined_a
not 1
not ''
not not 'x'
1 and 2
0 and 2
'' or 'fallback'
none or false or 0
1 or undefined_a.b
0 and undefined_a.b
name and n and x
'a' ~ 1 ~ none ~ true ~ 2.0 ~ [1]
'a' + 'b'
'a' + 1
'ab' * 3
3 * 'ab'
'ab' * -1
[1] * 2
[1] + [2]
(1,) + (2, 3)
[1] + (2,)
'a' 'b' "c"
'a\nb\tc\\d\'e'
'\x41\u00e9\U0001F389\101\q'
'\é'
"tab\	x"
'caf\u00e9' == 'café'
[1, 'a', none, true, 2.0, [], {}, (), (1,)]
{'a': 1, 'b': [1, {'c': none}]}
{1: 'x', 1.5: 'y', none: 'z', true: 'w'}
{'a': 1, 'a': 2}
{[1]: 2}
(1, 2, 3)
()
(1)
[1, 2, 3,]
{'a': 1,}
quote
[quote]
[uni]
["it's"]
['a"b']
['both \' and "']
['\x00\x1f\x7f\xa0\u00ad\u2028\ud7ff']
'yes' if n else 'no'
'yes' if not n else 'no'
'yes' if empty
'a' if no else 'b' if no else 'c'
('a' if no) is defined
name if n > 3 else undefined_a.b
name[0]
name[-1]
name[10]
name[-10]
name[1:]
name[::-1]
name[::2]
name[-2:]
name[5:1]
name[:-1]
name[-1::-1]
uni[6:10]
uni[::-1]
uni[11]
uni|length
text|length
items_[0]
items_[-1]
items_[5] is defined
items_[1:]
items_[::-1]
items_[::-2]
items_[:100]
items_[-100:2]
items_[::0]
items_[none:2]
items_['x'] is defined
items_[1.0] is defined
items_[true]
items_.0
nested[1][1][0]
nested.1.1.0
(1, 2, 3)[1:]
range(10)[2:5]
range(10)[-1]
range(5)
range(1, 10, 3)
range(5, 0, -2)|list
range(0)|list
range(3)|length
range(100001)
range(1, 2, 0)
d.b
d['b']
d.a[1]
d.C.k
d.missing
d.missing is defined
d.missing.more
d['missing']['more']
d.items
d['items']
d.items()|list
d.keys()|list
d.values()
d.items()
d.get('b')
d.get('zz')
d.get('zz', 5)
d.get('zz', default=5)
d.get
d.update({'x': 1})
d.pop('b')
d.clear is defined
d.copy().b
items_.append(1)
items_.append is defined
items_.index(1)
items_.index(9)
items_.count(1)
items_.copy()
(1, 2, 1).count(1)
nothing.x
nothing.x is defined
nothing['x'] is defined
n.x is defined
name.x is defined
undefined_a
undefined_a.x
undefined_a['x']
undefined_a()
undefined_a + 1
-undefined_a
undefined_a|length
undefined_a|list
undefined_a|upper
undefined_a|default('dd')
undefined_a|d
undefined_a ~ 'x'
[undefined_a]
undefined_a|tojson
undefined_a < 1
undefined_a[1:]
undefined_a|int
undefined_a|join(',')
undefined_a|first is defined
undefined_a is none
undefined_a is string
undefined_a is sequence
undefined_a is iterable
undefined_a is mapping
undefined_a is callable
nothing()
name()
n is number
x is number
yes is number
yes is integer
n is integer
x is float
yes is boolean
n is boolean
yes is true
n is true
no is false
none is none
name is string
name is sequence
name is iterable
n is iterable
nothing is iterable
d is mapping
d is sequence
d.items() is sequence
d.items() is iterable
items_ is sequence
items_ is mapping
range(3) is sequence
n is odd
n is even
neg is odd
n is divisibleby 7
n is divisibleby(2)
name is eq 'Ada'
name is equalto('Ada')
n is sameas 7
yes is sameas true
n is gt 5
n is lessthan 5
n is in [7]
'a' is in 'abc'
'abc' is lower
'ABC' is upper
'Abc' is upper
'123' is lower
name is not none
name is not defined
undefined_a is not defined and name is defined
not name is none
n is number and x is float
range is callable
d.get is callable
'upper' is filter
'odd' is test
'nope' is filter
name is defined is true
name|upper
name|lower
text|trim
text|trim|length
'xxaxx'|trim('x')
'xyaxy'|trim('yx')
text|upper
text|title
'hello wORLD-foo (bar) it\'s'|title
'hELLO wORLD'|capitalize
'ǆungla ßeta'|capitalize
'ΑΣ ΟΔΟΣ'|lower
n|upper
none|upper
name|replace('a', 'o')
'aaaa'|replace('a', 'b', 2)
'aaaa'|replace('', '-')
'aaaa'|replace('a', '')
n|replace(7, 8)
name|length
d|length
n|length
[1, 2]|count
items_|first
items_|last
[]|first
[]|last is defined
name|first
name|last
d|first
d|last
items_|join
items_|join(', ')
items_|join(1)
mixed|join('|')
people|join(', ', attribute='name')
people|map(attribute='name')|join(',')
people|map(attribute='addr.city')|join(',')
people|map(attribute='addr.city', default='?')|list
people|map(attribute='tags.0', default='-')|list
mixed|map('upper')|list
mixed|map('replace', 'a', 'z')|list
mixed|map('nope')|list
mixed|map|list
[[1, 2], [3]]|map('length')|list
[[3, 1], [2]]|map('sort')|list
[1, 2]|map(attribute=0)|list
people|selectattr('tags')|map(attribute='name')|list
people|selectattr('age', 'equalto', 30)|map(attribute='name')|list
people|selectattr('tags', 'defined')|list|length
people|selectattr('addr.city', 'undefined')|map(attribute='name')|list
people|rejectattr('age', 'gt', 28)|map(attribute='name')|list
people|rejectattr('tags')|list|length
items_|select('odd')|list
items_|reject('odd')|list
[0, 1, '', 'a', none]|select|list
[0, 1, '', 'a', none]|reject|list
items_|select('divisibleby', 2)|list
items_|select('in', [1, 2])|list
items_|select|length
items_|select|first
nothing|select|list
n|select|list
items_|sort
items_|sort(reverse=true)
mixed|sort
mixed|sort(case_sensitive=true)
people|sort(attribute='age')|map(attribute='name')|list
people|sort(attribute='age,name')|map(attribute='name')|list
people|sort(attribute='name', reverse=true)|map(attribute='name')|list
people|sort(attribute='age', reverse=true)|map(attribute='name')|list
[1, 'a']|sort
mixed|unique|list
[1, 1.0, true, 2]|unique|list
[[1], [1]]|unique|list
people|unique(attribute='age')|map(attribute='name')|list
items_|reverse|list
name|reverse
d|reverse|list
(items_|reverse)|length
items_|min
items_|max
mixed|min
mixed|max
people|max(attribute='age')
[]|min is defined
items_|sum
people|sum(attribute='age')
people|sum(attribute='age', start=100)
[1, 2.5]|sum
['a']|sum
name|list
d|list
n|list
d|dictsort
d|dictsort(true)
{'b': 2, 'a': 3}|dictsort(by='value')
{'b': 2, 'a': 3}|dictsort(false, 'key', true)
{'b': 2}|dictsort(by='x')
d|items|list
n|items|list
undefined_a|items|list
'42'|int
'42.9'|int
' 42 '|int
'-4_2'|int
'x'|int
'x'|int(5)
'ff'|int(base=16)
'0xff'|int(0, 16)
'0b11'|int(0, 2)
x|int
-2.7|int
yes|int
none|int
none|int(9)
[]|int
'1e3'|int
'3.5'|float
' 1_0.5 '|float
'nan'|float
'inf'|float
'-inf'|float
'x'|float
'x'|float(1.5)
n|float
none|float
n|string
none|string
x|string|length
neg|abs
-2.5|abs
'a'|abs
2.5|round
3.5|round
-2.5|round
2.675|round(2)
1234.5|round(-2)
7|round
1250|round(-2)
1350|round(-2)
2.1|round(0, 'ceil')
2.19|round(1, 'floor')
-2.1|round(method='floor')
2|round(1, 'nope')
'%s is %d'|format(name, n)
'%s' % name
'%s and %s' % (name, n)
'%d%%' % n
'%05d|%-5d|%+d|% d' % (n, n, n, n)
'%.2f|%8.3f|%e|%g' % (x, x, x, x)
'%x %X %o %#x' % (255, 255, 8, 255)
'%r %s' % (name, none)
'%5s|%-5s|%.1s' % ('ab', 'ab', 'ab')
'%(a)s-%(b)d' % {'a': 'x', 'b': 2}
'%s %s' % (1,)
'%s' % (1, 2)
'%d' % 'a'
'%c%c' % (65, 'b')
'%5.1f%%' % 12.345
'{} {}'.format(name, n)
'{0} {1} {0}'.format('a', 'b')
'{a} {b.city} {c[k]} {d[0]}'.format(a=1, b={'city': 'x'}, c={'k': 2}, d=[3])
'{:>5}|{:<5}|{:^5}|{:*^7}'.format('ab', 'ab', 'ab', 'ab')
'{:05d} {:+} {:,} {:x} {:#b}'.format(42, 42, 1234567, 255, 5)
'{:.2f} {:8.1f} {:e} {:.1%} {:g}'.format(x, x, x, 0.256, 1e10)
'{!r} {!s}'.format(name, name)
'{{}} {}'.format(1)
'{:{}}'.format('a', 4)
'{}'.format()
'{x}'.format(y=1)
'{:d}'.format('a')
'{:>4}'.format(true)
html|e
html|escape
html|safe
(html|safe) + '<b>'
'<b>' + (html|safe)
('<i>'|safe) ~ '<b>'
[html|safe]
(html|safe)|upper
(html|safe).replace('a', '<')
name|default('x')
empty|default('x')
empty|default('x', true)
none|default('x')
none|default('x', true)
0|default(5, boolean=true)
name|attr('upper')
d|attr('b') is defined
lines|indent
lines|indent(2)
lines|indent(2, true)
lines|indent(2, blank=true)
lines|indent('> ', first=true)
n|indent
d|tojson
schema|tojson
schema|tojson(indent=2)
schema|tojson(indent=0)
schema|tojson(sort_keys=true)
schema|tojson(ensure_ascii=true)
schema|tojson(separators=(',', ':'))
schema|tojson(indent=1, separators=(', ', ' : '))
quote|tojson
uni|tojson
uni|tojson(ensure_ascii=true)
html|tojson
'</script>'|tojson
[1, 2.0, none, true, 'x']|tojson
[]|tojson(indent=2)
{}|tojson(indent=2)
{'a': [], 'b': {}}|tojson(indent=2)
(1, 2)|tojson
{1: 2, none: 3, true: 4, 2.5: 5}|tojson
{(1, 2): 3}|tojson
range(3)|tojson
items_|select|tojson
[big, small, 1e16]|tojson
('nan'|float)|tojson
'a,b,,c'.split(',')
'a,b,,c'.split(',', 1)
'a,b,,c'.rsplit(',', 1)
'a,b,,c'.rsplit(',', maxsplit=2)
words.split()
words.split(none, 1)
words.split(maxsplit=2)
'  a b  c '.split(none, 1)
'  a b  c '.rsplit(none, 1)
'  a b  c '.rsplit(none, 0)
'  a b  c '.split(none, 0)
''.split()
''.split(',')
'abc'.split('')
'a<x>b<x>c'.split('<x>')[-1]
lines.splitlines()
lines.splitlines(true)
'a=b=c'.partition('=')
'a=b=c'.rpartition('=')
'abc'.partition('=')
text.strip()
text.lstrip()
text.rstrip()
'xxabcxx'.strip('x')
'xxabcxx'.lstrip('x')
'xyabcyx'.rstrip('xy')
'\n\nabc\n'.strip('\n')
'ääbä'.strip('ä')
'\u3000a\u00a0'.strip()
name.startswith('A')
name.startswith('A', 1)
name.startswith(('x', 'A'))
name.endswith('da')
name.endswith(1)
name.upper()
name.lower()
'straße'.upper()
'hello wORLD it\'s 3rd'.title()
'hELLO'.capitalize()
'Hello'.swapcase()
name.replace('d', 'DD')
'aXbXc'.replace('X', '-', 1)
name.replace(1, 2)
uni.find('日')
uni.find('zz')
uni.rfind('é')
uni.index('🎉')
uni.index('zz')
'banana'.find('an', 2)
'banana'.find('an', 2, 4)
'banana'.count('an')
'banana'.count('')
'banana'.rfind('an', 0, -2)
', '.join(mixed)
', '.join(items_)
''.join(name|list)
'-'.join('abc')
'7'.zfill(3)
'-7'.zfill(4)
'ab'.ljust(4, '.') ~ 'ab'.rjust(4) ~ 'ab'.center(5, '*')
'abc'.isalpha()
'ab1'.isalnum()
'12'.isdigit()
'²'.isdigit() ~ '²'.isdecimal() ~ '½'.isnumeric()
' \t'.isspace()
'ab'.isupper() ~ 'AB'.isupper() ~ 'A1'.isupper()
'abc'.removeprefix('a').removesuffix('c')
'abc'.nope()
'abc'.__class__
''.__class__.__mro__
d.__class__ is defined
namespace(a=1)
namespace(a=1).a
namespace({'a': 1}, b=2).b
namespace(a=1).b is defined
namespace(_a=1)
dict(a=1, b=2)
dict({'x': 1}, y=2)
dict([('a', 1), ('b', 2)])
dict([1])
cycler('a', 'b').next()
joiner('|')()
raise_exception('refused ' ~ n)
unknown_function(1)
range
n if n is defined and n > 1 else 0
(n > 3) and (x < 3)
n > 3 and x < 3 or no
not n > 3
not (n in items_)
n not in items_ and not no
-n|abs
-1 ** 2
n|string ~ '1'
'a' ~ 'b' == 'ab'
1 + 2 ~ 3 + 4
2 * 3 ~ 4
'a'|upper ~ 'b'
('a' ~ 'b')|upper
[1, 2]|map('string')|join('+')
people[0].name
people[0]['addr'].city[0]
people|length > 2
(people|first).name
people|map(attribute='age')|sum // people|length
d.a|map('string')|join('/')
'x'.join(['a'])[0]
{'a': {'b': [10, 20]}}.a.b[1]
[[1, 2], [3, 4]][1][0]
'abc'[1] in 'xbz'
loop is defined
caller is defined
1,2
1,
a = 1
1 +
(1
[1, 2
{'a' 1}
'abc
name.
name|
name|nope
name is nope
name ! n
@
n..n
1.a
if
name name
[1,,2]
f(a=1, 2)
f(*[1], *[2])
f(**{'a': 1}, b=2)
range(*[1, 4])|list
dict(**{'a': 1})
9223372036854775807
-9223372036854775807 - 1
""".strip("\n").split("\n")

TEMPLATES = [
    "",
    "\n",
    "a\n",
    "a\n\n",
    "a\r\nb\rc\n",
    "{{ name }}\n",
    "{{ name }}\n\n",
    "  {% if yes %}\n  x\n  {% endif %}\n",
    "  {%+ if yes %}\n  x\n  {%+ endif %}\n",
    "a {% if yes %} b {% endif %} c",
    "a\n{%- if yes -%}\n  b  \n{%- endif -%}\n c",
    "a\n  {%- if yes +%}\n  b  \n{%- endif +%}\n c",
    "{{- name -}}  x {{- name -}} ",
    "  {{ name }}\n  {{- name }}\n",
    "a {# comment #} b",
    "a\n  {# comment #}\nb",
    "a\n  {#- comment -#}\nb",
    "a\n  {#+ comment +#}\nb",
    "{# {{ name }} {% if %} #}x",
    "{#",
    "{# never closed",
    "{#-#}x",
    "{% raw %}{{ x }} {% if %}{% endraw %}",
    "  {% raw %}\n  {{ x }}\n  {% endraw %}\n y",
    "  {%- raw -%}\n  {{ x }}\n  {%- endraw -%}\n y",
    "{% raw %}",
    "{% raw %}{% endraw",
    "a\n\t {% set q = 1 %} \nb",
    "{% set q = 1 %}{% set q = q + 1 %}{{ q }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set (a, b) = [1, 2] %}{{ a }}{{ b }}",
    "{% set a, (b, c) = 1, (2, 3) %}{{ a }}{{ b }}{{ c }}",
    "{% set a, b = 1 %}",
    "{% set a, b = [1, 2, 3] %}",
    "{% set a, b = 'xy' %}{{ a }}{{ b }}",
    "{% set a.b = 1 %}",
    "{% set n.b = 1 %}",
    "{% set ns = namespace(a=1) %}{% set ns.a = ns.a + 1 %}{% set ns.b = 'x' %}{{ ns.a }}{{ ns.b }}{{ ns }}",
    "{% set ns = namespace() %}{% set ns.x, ns.y = 1, 2 %}{{ ns.x }}{{ ns.y }}",
    "{% set ns = namespace() %}{% set ns._x = 1 %}",
    "{% set x = 5 %}{% for i in range(3) %}{% set x = i %}{{ x }}{% endfor %}{{ x }}",
    "{% set ns = namespace(c=0) %}{% for i in range(4) %}{% set ns.c = ns.c + i %}{% endfor %}{{ ns.c }}",
    "{% for i in [1, 2] %}{% if i == 1 %}{% set z = i %}{% endif %}{{ z }};{% endfor %}{{ z }}",
    "{% set z = 'o' %}{% for i in [1, 2] %}{% if i == 1 %}{% set z = i %}{% endif %}{{ z }};{% endfor %}{{ z }}",
    "{% for i in [1] %}{{ name }}{% endfor %}{% set name = 'new' %}{{ name }}",
    "{% if yes %}{% set name = 'new' %}{% endif %}{{ name }}",
    "{% if no %}{% set name = 'new' %}{% endif %}{{ name }}",
    "{{ name }}{% if no %}{% set name = 'new' %}{% endif %}{{ name }}",
    "{% for i in [1] %}{% if no %}{% set name = 'new' %}{% endif %}{{ name }}{% endfor %}",
    "{% if no %}{% elif yes %}{% set name = 'elif' %}{% else %}{% set other = 1 %}{% endif %}{{ name }}{{ other }}",
    "{% macro m() %}{{ name }}{% endmacro %}{{ m() }}{% set name = 'new' %}{{ m() }}",
    "{% set q = 1 %}{% macro m() %}{{ q }}{% set q = 2 %}{{ q }}{% endmacro %}{{ m() }}{{ q }}",
    "{% for i in [1, 2, 3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}",
    "{% for i in [1, 2, 3] %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {% endfor %}",
    "{% for i in [1, 2] %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}",
    "{% for i in range(5) %}{{ loop.cycle('a', 'b', 'c') }}{% endfor %}",
    "{% for i in [1] %}{{ loop.cycle() }}{% endfor %}",
    "{% for i in [1, 1, 2] %}{{ loop.changed(i) }}{% endfor %}",
    "{% for i in [1, 2, 3, 4] if i is even %}{{ i }}/{{ loop.length }}{{ loop.last }}{% endfor %}",
    "{% for i in [1, 3] if i is even %}x{% else %}none{% endfor %}",
    "{% for i in [] %}x{% else %}none{% endfor %}",
    "{% for i in undefined_a %}x{% else %}none{% endfor %}",
    "{% for i in nothing %}x{% endfor %}",
    "{% for i in 5 %}x{% endfor %}",
    "{% for k in d %}{{ k }} {% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }} {% endfor %}",
    "{% for k, v in d|items %}{{ k }}={{ v }} {% endfor %}",
    "{% for k, v in d|dictsort %}{{ k }}={{ v }} {% endfor %}",
    "{% for k, v in d.items() if k != 'b' %}{{ loop.index }}{{ k }}{{ ',' if not loop.last }}{% endfor %}",
    "{% for a, b in [[1, 2], [3, 4]] %}{{ a + b }} {% endfor %}",
    "{% for a, b in [[1, 2, 3]] %}{{ a }}{% endfor %}",
    "{% for (a, b), c in [[[1, 2], 3]] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for c in 'héy' %}{{ c }}.{% endfor %}",
    "{% for i in range(10) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in range(5) %}{% if i is odd %}{% continue %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in [1] %}{% continue %}{% else %}else{% endfor %}",
    "{% for i in [1] %}{% break %}{% else %}else{% endfor %}",
    "{% for i in [1, 2] %}{% for j in [1, 2] %}{% if j == 2 %}{% break %}{% endif %}{{ i }}{{ j }} {% endfor %}{% endfor %}",
    "{% for i in [1, 2] %}{% for j in 'ab' %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}",
    "{% for i in [1, 2] %}{% set outer = loop %}{% for j in 'ab' %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}",
    "{% break %}",
    "{% for i in [1] %}{% set loop = 1 %}{% endfor %}",
    "{% for i in [1, 2] %}{{ loop }}{% endfor %}",
    "{% set m = items_|select('odd') %}{{ m|list }}{{ m|list }}",
    "{% set m = items_|map('string') %}{% for i in m %}{{ i }}{{ loop.length }}{% endfor %}{{ m|list }}",
    "{% set m = items_|reverse %}{{ m|first }}{{ m|list }}",
    "{% for m in items_|select %}{{ m }}{{ loop.last }}{{ loop.nextitem }}{% endfor %}",
    "{% set ns = namespace(f=false) %}{% for i in [1, 2, 3] if not ns.f %}{{ i }}{% if i == 2 %}{% set ns.f = true %}{% endif %}{% endfor %}",
    "{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(1, c=5) }} {{ m() }} {{ m(b=1, a=0) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=2) }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}",
    "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}",
    "{% macro m(n) %}{{ n }}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(5) }}",
    "{% macro m() %}x{% endmacro %}{{ m }}{{ m.name }}{{ m.arguments }}",
    "{% macro m(a, b) %}{{ caller() }}{{ caller() }}{% endmacro %}{% call m(1, 2) %}body{% endcall %}",
    "{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) m() %}{{ a + b }}{{ name }}{% endcall %}",
    "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
    "{% macro a() %}[{{ b() }}]{% endmacro %}{% macro b() %}b{% endmacro %}{{ a() }}",
    "{% macro m(x) -%}\n  {{ x }}\n{%- endmacro %}\n{{ m('q') }}|",
    "{% macro m(a, a) %}{% endmacro %}",
    "{% macro m(a=1, b) %}{% endmacro %}",
    "{{ m2() }}{% macro m2() %}x{% endmacro %}",
    "{% if yes %}{% macro m3() %}x{% endmacro %}{% endif %}{{ m3() }}",
    "{% for i in [1, 2] %}{% macro m4() %}{{ i }}{% endmacro %}{{ m4() }}{% endfor %}",
    "{% set block %}a{{ name }}b{% endset %}{{ block|upper }}",
    "{% set block|upper %}a{{ name }}b{% endset %}{{ block }}",
    "{% set block | replace('a', 'x') | trim %} a{{ name }} {% endset %}{{ block }}",
    "{% set q = 1 %}{% set block %}{% set q = 2 %}{{ q }}{% endset %}{{ block }}{{ q }}",
    "{% filter upper %}a{{ name }}{% endfilter %}",
    "{% filter replace('a', 'b')|upper %}a{% set q = 1 %}{% endfilter %}{{ q }}",
    "{% filter trim %}\n x \n{% endfilter %}|",
    "{% with a = 1, b = name %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% set a = 5 %}{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% with %}{% set w = 1 %}{{ w }}{% endwith %}{{ w }}",
    "{% generation %}a{{ name }}{% set g = 1 %}{% endgeneration %}{{ g }}",
    "{% for i in [1, 2] %}{% generation %}{{ loop.index }}{{ i }}{% endgeneration %}{% endfor %}",
    "{% if yes %}a{% elif no %}b{% else %}c{% endif %}",
    "{% if no %}a{% elif yes %}b{% else %}c{% endif %}",
    "{% if no %}a{% elif no %}b{% else %}c{% endif %}",
    "{% if undefined_a %}a{% else %}b{% endif %}",
    "{% if items_|select %}gen{% endif %}",
    "{% if name: %}x{% endif %}",
    "{% if no %}{{ name|nope }}{% endif %}ok",
    "{% if no %}{% for i in [1] %}{{ name|nope }}{% endfor %}{% endif %}ok",
    "{{ (name|nope) if no else 'ok' }}",
    "{% if yes %}",
    "{% endif %}",
    "{% if yes %}{% endfor %}",
    "{% for i in [1] %}{% else %}",
    "{% nope %}",
    "{% %}",
    "{{ }}",
    "{{ name }",
    "{{ name",
    "{% if yes",
    "}} %} #} { % x",
    "{{ {'a': {'b': 1}} }}",
    "{{ {'a': 1}['a'] }}}",
    "{{ '}}' }}{{ \"%}\" }}",
    "{{ name }}{{ n }}{{ x }}",
    "{{ name\n  ~ n }}",
    "{% set q = cycler('a', 'b') %}{{ q.next() }}{{ q.next() }}{{ q.current }}{{ q.next() }}{{ q.reset() }}{{ q.current }}",
    "{% set j = joiner() %}{% for i in [1, 2, 3] %}{{ j() }}{{ i }}{% endfor %}",
    "{% print name, n %}",
    "{{ name }}{% if raise_exception is defined %}{{ raise_exception('stop: ' + name) }}{% endif %}",
    "{{ raise_exception() }}",
    "{% set tools = [{'function': {'name': 'f', 'parameters': {}}}] %}{{ tools|tojson(indent=4) }}",
    "{%- for m in people -%}{{ m.name }}{{ ', ' if not loop.last else '.' }}{%- endfor -%}",
    "{% set x %}{% for i in [1, 2] %}{{ i }}{% endfor %}{% endset %}{{ x }}",
    "{% for i in [1, 2, 3] %}{% set b %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endset %}{{ b }}{% endfor %}",
    "{% for i in [3, 1] %}{% filter upper %}a{% if i == 1 %}{% break %}{% endif %}{% endfilter %}{% endfor %}.",
    "{{ [1, 2, 3] | map('string') | map('replace', '1', 'x') | join(',') }}",
    "{% set q = {'a': 1} %}{% set q = dict(q, b=2) %}{{ q }}",
    "{% set ns = namespace(l=[]) %}{% for i in range(3) %}{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.l }}",
    "\n\n  {% set a = 1 %}\n\n  {{ a }}\n",
    "{% if yes %}\n\n  a\n{% endif %}\n\n",
    "{%- if yes %}  \n a{% endif -%}   \n\n b",
    "x  {#- c #}  \n y",
    "{{ name }} {%- if yes %} a {%- endif %} b",
    "{% set ns = namespace(v=1) %}{% macro bump() %}{% set ns.v = ns.v + 1 %}{{ ns.v }}{% endmacro %}{{ bump() }}{{ bump() }}{{ ns.v }}",
    "{% macro f(x) %}{% if x is mapping %}{ {%- for k, v in x|dictsort %}{{ k }}:{{ f(v) }}{{ ',' if not loop.last }}{% endfor -%} }{% elif x is string %}'{{ x }}'{% elif x is iterable %}[{% for v in x %}{{ f(v) }}{{ ',' if not loop.last }}{% endfor %}]{% else %}{{ x }}{% endif %}{% endmacro %}{{ f(d) }}",
]
