"""Small programs that the interpreter must run as Python does; each takes one number."""
# ruff: noqa


def ids(n):
    given = [3, -1, n]
    return [val + 1 for val in given if val != -1], -1 in given, sorted(set(given))


def defaults(n):
    def layers(ids=None, num_layers=61):
        return [2, num_layers // 2, num_layers - 3] if ids is None else list(ids)

    return layers(), layers([n]), layers(num_layers=n)


def closure(n):
    def g(x, *rest, k=2, **more):
        return x * k + n, rest, more

    return g(3), g(1, 2, 3, k=5, z=1)


def loops(n):
    out = []
    for i in range(n):
        if i == 2:
            continue
        if i == 3:
            break
        out.append(i)
    else:
        out.append("end")
    return out


def while_loop(n):
    total = 0
    while n > 0:
        total, n = total + n, n - 1
    return total


def unpacking(n):
    a, *b, c = range(n)
    (d, e), g = (a, c), b
    return a, b, c, d, e, g


def dicts(n):
    d = {"a": n, **{"b": 2}}
    d["c"] = d.get("x", 7)
    d.update(z=1)
    return list(d.items()), "a" in d, {k: v for k, v in d.items() if v != 2}


def missing_key(n):
    return {"a": 1}[n]


def exceptions(n):
    try:
        return [1, 2][n]
    except IndexError as e:
        return str(e)
    finally:
        n = 9


def bare_except(n):
    try:
        return None.get(n)
    except:
        return "none"


def raises(n):
    if n:
        raise ValueError(f"no {n}")
    assert n, "never zero"


class A:
    x = 1

    def __init__(self, n):
        self.n = n

    @property
    def twice(self):
        return self.n * 2

    @classmethod
    def make(cls, n):
        return cls(n)


class B(A):
    def __init__(self, n):
        super().__init__(n + 1)
        self.m = getattr(self, "x", 0)


def classes(n):
    b = B.make(n)
    return b.n, b.m, b.twice, b.x, hasattr(b, "no"), isinstance(b, A)


def missing_attribute(n):
    return A(n).gone


def types(n):
    return n + "x"


def texts(n):
    return f"{n:>4}|{n!r}|{[n, None]}", "a%sb" % n, "-".join(["x", "y"]), "Ab".lower()


def folds(n):
    return sum(range(n)), max(n, 3), min([n, 3]), any([0, n]), all([]), abs(-n), len("abc")


def iterators(n):
    pairs = list(enumerate("ab", 1)), list(zip("ab", [1, 2])), list(reversed([1, 2]))
    return pairs, sorted([3, 1], reverse=True), list(map(lambda x: x + n, [1])), list(filter(None, [0, 1]))


def slices(n):
    x = list(range(9))
    return x[1:n], x[::-1], x[-1], x[n:], x[:2] + x[7:]


def conditions(n):
    return n and 2, n or 3, not n, 1 < n <= 4, n if n else None, n is None, n != 3


def augmented(n):
    x = [1]
    y = x
    x += [n]
    n -= 1
    return x, y, n


def wrong_call(n):
    def g(a, b):
        pass

    return g(n)


def too_many(n):
    a, b = [1, 2, n]


def undefined(n):
    return nothing_of_this_name


def walrus(n):
    return [y for x in range(n) if (y := x * 2) > 2]


def deleted(n):
    a = n
    del a
    return a


def sorting(n):
    return sorted([[2, n], [1, n]], key=lambda pair: pair[0]), [3, n, -1].index(n)


def deleted_items(n):
    a, d = [1, 2, 3, 4, 5], {"x": 1, "y": n}
    del a[0], a[1:3], d["x"]
    del a[n]
    return a, d


def lists_in_place(n):
    a = [n]
    a += (2,)
    a.insert(0, 3)
    a.extend([4, 5])
    a[1:1] = [6]
    a.append(a.pop(0))
    a.remove(4)
    a.reverse()
    return a, a.pop(), a[::-1], [7, *a], a * 2
