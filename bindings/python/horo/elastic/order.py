"""The order of the samples of a pass: a permutation that follows from (seed, pass, length) alone, on any machine.

It is a Feistel network over the pairs (i // b, i % b) of a grid of a x b places with a * b >= length (Black and
Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002): each of eight rounds adds a table's entry to one half.
The tables are drawn by random.Random(), the Mersenne Twister, whose random() Python keeps the same for a seed. A place
outside of the data set is permuted again until it is inside. So an order of n samples needs O(sqrt(n)) memory, a rank
that joins in the middle of a pass has it at once, and the global generators of Python, NumPy and torch have no part in
it.
"""

import hashlib
import math
import random


class Order:
    """A sequence: order[position] is the index of a sample, each index once. Immutable, safe for threads."""

    def __init__(self, length, seed, number):
        """length: the number of samples. seed: an integer. number: of the pass, from 0."""
        self._length = length
        self._rows = max(1, math.isqrt(max(0, length - 1)) + 1)
        self._columns = max(1, -(-length // self._rows))
        key = hashlib.sha256(f"horo.elastic.Sampler {seed} {number} {length}".encode()).digest()
        draw = random.Random(int.from_bytes(key, "big")).random
        sides = (self._columns, self._rows) * 4  # of the half that is looked up: columns in even rounds
        other = (self._rows, self._columns) * 4
        self._tables = [[int(draw() * most) for _ in range(count)] for count, most in zip(sides, other)]

    def __len__(self):
        return self._length

    def __getitem__(self, position):
        if not 0 <= position < self._length:
            raise IndexError(f"position {position} of an order of {self._length} samples")
        rows, columns = self._rows, self._columns
        a, b, c, d, e, f, g, h = self._tables
        while True:  # without a loop over the eight rounds, which takes twice the time
            row, column = divmod(position, columns)
            row += a[column]
            column += b[row % rows]
            row += c[column % columns]
            column += d[row % rows]
            row += e[column % columns]
            column += f[row % rows]
            row += g[column % columns]
            row %= rows
            column = (column + h[row]) % columns
            position = row * columns + column
            if position < self._length:
                return position
