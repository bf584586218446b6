"""The training of a client with a dense network as one call, compiled. Needs numba.

A thread goes through all layers and steps of a client alone; the products are those of scipy's
BLAS. What a layer puts out is ``[out, b]``: for BLAS the faster way round.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numba
import numpy as np
import scipy.linalg.blas  # noqa: F401 - numba takes its products from there

from srfca.federation.optimizer import BETAS, EPSILON

_compiled: Any = partial(
    numba.njit, cache=True, nogil=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"}
)


@_compiled
def train(
    rows, moments, starts, anchors, index, weights, rates, roots,
    x, y, rule, layers, state, batch, outputs, slopes,
):  # fmt: skip
    """Clients go from ``starts`` ``[c, P]`` to ``rows``, and on with their moments ``[c, k, P]``.

    Moments ``[0, k, P]`` begin at zero and are forgotten. From ``state`` on all are buffers.
    """
    length, stored = rows.shape[1], len(moments) > 0
    row, gradient, first, second = state[0, :length], state[1, :length], state[2], state[3]
    for client in range(len(rows)):
        _copy(starts[client], row)
        for kind in range(moments.shape[1]):
            if stored:
                _copy(moments[client, kind], state[2 + kind])
            else:
                state[2 + kind] = 0
        for step in range(len(rates)):
            for sample in range(len(batch)):
                _copy(x[index[step, client, sample]], batch[sample])
            _forward(row, layers, batch, outputs)
            _slope(layers, outputs, y, index[step, client], weights[step, client], slopes)
            _backward(row, layers, batch, outputs, slopes, gradient)
            _move(row, anchors[client], gradient, first, second, rates[step], roots[step], rule)
        _copy(row, rows[client])
        for kind in range(moments.shape[1]):
            if stored:
                _copy(state[2 + kind, :length], moments[client, kind])


@_compiled
def _copy(numbers, to):
    for i in range(len(numbers)):
        to[i] = numbers[i]


@_compiled
def _part(flat, at, rows, columns):
    return flat[at : at + rows * columns].reshape(rows, columns)


@_compiled
def _forward(row, layers, batch, outputs):
    b = len(batch)
    for place in range(len(layers)):
        into, out, at, bias, begin, relu = layers[place]
        weight, found = _part(row, at, out, into), _part(outputs, begin * b, out, b)
        if place == 0:
            np.dot(weight, batch.T, found)
        else:
            np.dot(weight, _part(outputs, (begin - into) * b, into, b), found)
        for unit in range(out):
            line = found[unit]
            if bias >= 0:
                line += row[bias + unit]
            if relu:
                for sample in range(b):
                    if line[sample] < 0:
                        line[sample] = 0


@_compiled
def _slope(layers, outputs, y, index, weights, slopes):
    """The slope of the weighted losses behind the last layer; classes are ``[n]``."""
    _, out, _, _, begin, _ = layers[-1]
    b = len(weights)
    found, slope = _part(outputs, begin * b, out, b), _part(slopes, begin * b, out, b)
    for sample in range(b):
        if y.ndim == 1:
            largest, total = found[0, sample], slopes.dtype.type(0)
            for unit in range(1, out):
                largest = max(largest, found[unit, sample])
            for unit in range(out):
                slope[unit, sample] = np.exp(found[unit, sample] - largest)
                total += slope[unit, sample]
            for unit in range(out):
                slope[unit, sample] *= weights[sample] / total
            slope[y[index[sample]], sample] -= weights[sample]
        else:
            for unit in range(out):
                error = found[unit, sample] - y[index[sample], unit]
                slope[unit, sample] = error * weights[sample] * 2 / out


@_compiled
def _backward(row, layers, batch, outputs, slopes, gradient):
    b = len(batch)
    for place in range(len(layers) - 1, -1, -1):
        into, out, at, bias, begin, relu = layers[place]
        found, slope = _part(outputs, begin * b, out, b), _part(slopes, begin * b, out, b)
        for unit in range(out):
            if relu:
                for sample in range(b):
                    if found[unit, sample] <= 0:
                        slope[unit, sample] = 0
            if bias >= 0:
                gradient[bias + unit] = slope[unit].sum()
        if place == 0:
            np.dot(slope, batch, _part(gradient, at, out, into))
        else:
            before = (begin - into) * b
            found = _part(outputs, before, into, b)
            np.dot(slope, found.T, _part(gradient, at, out, into))
            np.dot(_part(row, at, out, into).T, slope, _part(slopes, before, into, b))


@_compiled
def _move(row, anchor, gradient, first, second, rate, root, rule):
    """A step of Adam, or of SGD with or without momentum, as torch does it."""
    adam, momentum, decay, prox, clip = rule
    if prox > 0:
        for i in range(len(row)):
            gradient[i] += prox * (row[i] - anchor[i])
    if clip > 0:
        norm = np.sqrt(np.dot(gradient, gradient)) + row.dtype.type(1e-6)
        if norm > clip:
            for i in range(len(row)):
                gradient[i] *= clip / norm
    if adam > 0:
        left, right = row.dtype.type(1 - BETAS[0]), row.dtype.type(1 - BETAS[1])
        keep, epsilon = row.dtype.type(BETAS[1]), row.dtype.type(EPSILON)
        for i in range(len(row)):
            slope = gradient[i] + decay * row[i]
            first[i] += left * (slope - first[i])
            second[i] = keep * second[i] + right * slope * slope
            row[i] -= rate * first[i] / (root * np.sqrt(second[i]) + epsilon)
    elif momentum > 0:
        for i in range(len(row)):
            first[i] = momentum * first[i] + gradient[i] + decay * row[i]
            row[i] -= rate * first[i]
    else:
        for i in range(len(row)):
            row[i] -= rate * (gradient[i] + decay * row[i])
