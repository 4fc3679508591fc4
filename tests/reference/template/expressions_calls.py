"""Expressions, one a line: filters, string methods, functions, how these bind with operators, and faults of syntax."""

CALLS = r"""
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
'{:05}|{:5.1}'.format('a', 'bc')
'{:,}'.format('a')
'{:+}'.format('a')
'{:#}'.format('a')
'{:=5}'.format('a')
'{:>5}'.format([1])
'{:>5}'.format({})
'{:>5}'.format(none)
'{:>5}'.format(missing)
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
