"""Expressions, one a line: literals, operators, subscripts and attributes, undefined names, tests."""

VALUES = r"""
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
-0.1 // -2
-0.0 // 2
0.0 // -2
0.5 // 2
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
""".strip("\n").split("\n")
