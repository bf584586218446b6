"""Training of clients with a dense network in one compiled call. Needs numba.

One thread takes a client through all of its steps, with the matrix products of scipy's BLAS. The
output of a layer is ``[out, b]``, the faster layout for BLAS.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numba
import numpy as np
import scipy.linalg.blas  # noqa: F401 - numba calls it for products

from srfca.engine.optimizer import BETAS, EPSILON

_compiled: Any = partial(
    numba.njit, cache=True, nogil=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"}
)


@_compiled
def train(
    rows, moments, starts, anchors, corrections, index, weights, rates, roots,
    x, y, rule, ranges, layers, state, batch, outputs, gradients,
):  # fmt: skip
    """Train clients from ``starts`` ``[c, P]`` to ``rows``, with their moments ``[c, k, P]``.

    Moments ``[0, k, P]`` start at zero and are dropped. ``corrections`` are ``[c, P]``, or
    ``[0, P]`` for none. Coordinates in ``ranges`` ``[r, 2]`` train. The last arguments, from
    ``state`` on, are buffers.
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
            _loss_gradient(
                layers, outputs, y, index[step, client], weights[step, client], gradients
            )
            _backward(row, layers, batch, outputs, gradients, gradient)
            if len(corrections) > 0:
                for i in range(length):
                    gradient[i] += corrections[client, i]
            _penalize(row, anchors[client], gradient, rule, ranges)
            for part in range(len(ranges)):
                begin, end = ranges[part]
                _move(
                    row[begin:end], gradient[begin:end], first[begin:end], second[begin:end],
                    rates[step], roots[step], rule,
                )  # fmt: skip
        _copy(row, rows[client])
        for kind in range(moments.shape[1]):
            if stored:
                _copy(state[2 + kind, :length], moments[client, kind])


@_compiled
def _copy(source, target):
    for i in range(len(source)):
        target[i] = source[i]


@_compiled
def _part(flat, at, rows, columns):
    return flat[at : at + rows * columns].reshape(rows, columns)


@_compiled
def _forward(row, layers, batch, outputs):
    b = len(batch)
    for place in range(len(layers)):
        into, out, at, bias, begin, relu = layers[place]
        weight, output = _part(row, at, out, into), _part(outputs, begin * b, out, b)
        if place == 0:
            np.dot(weight, batch.T, output)
        else:
            np.dot(weight, _part(outputs, (begin - into) * b, into, b), output)
        for unit in range(out):
            line = output[unit]
            if bias >= 0:
                line += row[bias + unit]
            if relu:
                for sample in range(b):
                    if line[sample] < 0:
                        line[sample] = 0


@_compiled
def _loss_gradient(layers, outputs, y, index, weights, gradients):
    """Compute the gradient of the weighted losses by the outputs; targets ``[n]`` are classes."""
    _, out, _, _, begin, _ = layers[-1]
    b = len(weights)
    output, slope = _part(outputs, begin * b, out, b), _part(gradients, begin * b, out, b)
    for sample in range(b):
        if y.ndim == 1:
            largest, total = output[0, sample], gradients.dtype.type(0)
            for unit in range(1, out):
                largest = max(largest, output[unit, sample])
            for unit in range(out):
                slope[unit, sample] = np.exp(output[unit, sample] - largest)
                total += slope[unit, sample]
            for unit in range(out):
                slope[unit, sample] *= weights[sample] / total
            slope[y[index[sample]], sample] -= weights[sample]
        else:
            for unit in range(out):
                error = output[unit, sample] - y[index[sample], unit]
                slope[unit, sample] = error * weights[sample] * 2 / out


@_compiled
def _backward(row, layers, batch, outputs, gradients, gradient):
    b = len(batch)
    for place in range(len(layers) - 1, -1, -1):
        into, out, at, bias, begin, relu = layers[place]
        output, slope = _part(outputs, begin * b, out, b), _part(gradients, begin * b, out, b)
        for unit in range(out):
            if relu:
                for sample in range(b):
                    if output[unit, sample] <= 0:
                        slope[unit, sample] = 0
            if bias >= 0:
                gradient[bias + unit] = slope[unit].sum()
        if place == 0:
            np.dot(slope, batch, _part(gradient, at, out, into))
        else:
            before = (begin - into) * b
            inputs = _part(outputs, before, into, b)
            np.dot(slope, inputs.T, _part(gradient, at, out, into))
            np.dot(_part(row, at, out, into).T, slope, _part(gradients, before, into, b))


@_compiled
def _penalize(row, anchor, gradient, rule, ranges):
    """Add the proximal term, and clip the gradient of the coordinates that train."""
    _, _, _, mu, clip = rule
    if mu > 0:
        for i in range(len(row)):
            gradient[i] += mu * (row[i] - anchor[i])
    if clip > 0:
        square = row.dtype.type(0)
        for part in range(len(ranges)):
            begin, end = ranges[part]
            square += np.dot(gradient[begin:end], gradient[begin:end])
        norm = np.sqrt(square) + row.dtype.type(1e-6)
        if norm > clip:
            for i in range(len(row)):
                gradient[i] *= clip / norm


@_compiled
def _move(row, gradient, first, second, rate, root, rule):
    """Take a step of Adam, or of SGD with or without momentum, like torch."""
    adam, momentum, decay, _, _ = rule
    if adam > 0:
        share_first, share_second = row.dtype.type(1 - BETAS[0]), row.dtype.type(1 - BETAS[1])
        keep, epsilon = row.dtype.type(BETAS[1]), row.dtype.type(EPSILON)
        for i in range(len(row)):
            slope = gradient[i] + decay * row[i]
            first[i] += share_first * (slope - first[i])
            second[i] = keep * second[i] + share_second * slope * slope
            row[i] -= rate * first[i] / (root * np.sqrt(second[i]) + epsilon)
    elif momentum > 0:
        for i in range(len(row)):
            first[i] = momentum * first[i] + gradient[i] + decay * row[i]
            row[i] -= rate * first[i]
    else:
        for i in range(len(row)):
            row[i] -= rate * (gradient[i] + decay * row[i])
