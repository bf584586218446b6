"""What the theory bounds, measured on problems whose constants are known.

Each function returns a figure: curves of measurements and of the bound, and sentences that say what
was seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from srfca.clustering.partition import Partition
from srfca.theory.bounds import (
    cluster_model_bound,
    contraction,
    expected_kl,
    ifca_separation,
    margin,
    one_shot_bound,
    sr_fca_separation,
)
from srfca.theory.problem import Quadratics, Settings, ifca
from srfca.theory.quantities import cluster_labels

NOISE_OF_KL = 0.5


@dataclass(frozen=True)
class Curve:
    """One line of a panel; a bound is drawn dashed."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    bound: bool = False


@dataclass(frozen=True)
class Panel:
    """Axes with curves; both scales are logarithmic unless switched off."""

    title: str
    x: str
    y: str
    curves: Sequence[Curve]
    log_x: bool = True
    log_y: bool = True


@dataclass(frozen=True)
class Figure:
    """Panels that belong together, and what they show."""

    name: str
    panels: Sequence[Panel]
    sentences: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Effort:
    """How many runs a point of a curve takes, and how many points there are."""

    trials: int = 2000
    points: int = 8

    @classmethod
    def quick(cls) -> Effort:
        """Return what takes seconds."""
        return cls(trials=60, points=3)

    def grid(self, start: float, stop: float) -> NDArray[np.float64]:
        """Return points between two ends, in equal ratios."""
        return np.geomspace(start, stop, self.points)

    def integers(self, start: int, stop: int) -> list[int]:
        """Return whole numbers between two ends, in equal ratios."""
        return sorted({round(value) for value in self.grid(start, stop)})


def one_shot(effort: Effort, seed: int = 0) -> Figure:
    """Pr[C_0 != C*] against n, the separation and m."""
    settings, rng = Settings(), np.random.default_rng(seed)

    def point(samples: int, **options: float) -> tuple[float, float]:
        problem = _problem(**options)
        [errors] = error_rates(problem, samples, settings, effort.trials, rng)
        return errors, bound_of(problem, samples, settings)

    samples = effort.integers(140, 340)
    by_samples = [point(n) for n in samples]
    gaps = effort.grid(1.1, 1.8).tolist()
    by_gap = [point(100, separation=gap) for gap in gaps]
    inside_and_across = [_problem(separation=gap).separations for gap in gaps]
    apart = [eps2 - eps1 for eps1, eps2 in inside_and_across]
    clients = effort.integers(6, 60)
    by_clients = [point(200, clients=m) for m in clients]
    panels = [
        _probability("against n", "n", samples, by_samples, log_x=False),
        _probability("against eps2 - eps1, n = 100", "eps2 - eps1", apart, by_gap, log_x=False),
        _probability("against m, n = 200", "m", clients, by_clients),
    ]
    rates = _between(samples, [error for error, _ in by_samples])
    by_m = _between(clients, [error for error, _ in by_clients])
    problem = _problem()
    exponent = margin_of(problem, settings) / (problem.lipschitz * np.sqrt(problem.dimension))
    sentences = [f"The bound with b2 = 1 has the exponent {exponent:.2g} n."]
    if len(rates[0]) > 1:
        slope = -np.polyfit(rates[0], np.log(rates[1]), 1)[0]
        sentences.append(
            f"Pr[C_0 != C*] falls as exp(-{slope:.3f} n): b2 would have to be "
            f"{slope / exponent:.0f} for the bound to fall as fast."
        )
    if len(by_m[0]) > 1:
        power = np.polyfit(np.log(by_m[0]), np.log(by_m[1]), 1)[0]
        sentences.append(f"It grows as m^{power:.2f}; the bound grows as m.")
    vacuous = all(bound >= 1 for _, bound in [*by_samples, *by_gap, *by_clients])
    if vacuous:
        sentences.append("The bound with b2 = 1 is vacuous (above 1) at all of these sizes.")
    return Figure("one_shot", panels, sentences)


def refine(effort: Effort, seed: int = 0) -> Figure:
    """What REFINE makes of the error of ONE_SHOT: once, and several times with resampling."""
    settings, rng = Settings(min_size=3), np.random.default_rng(seed)
    clients = effort.integers(8, 48)
    before, once, lost = [], [], []
    for m in clients:
        problem = _problem(clients=m)
        rates = error_rates(problem, 120, settings, effort.trials, rng, refine_steps=1)
        before.append(rates[0])
        once.append(rates[1])
        lost.append(lost_clusters(problem, 120, settings, effort.trials, rng))
    problem, samples = _problem(clients=24), 60
    several = error_rates(problem, samples, settings, effort.trials, rng, refine_steps=3)
    same = error_rates(
        problem, samples, settings, effort.trials, rng, refine_steps=3, resample=False
    )
    missing = lost_clusters(problem, samples, settings, effort.trials, rng)
    steps = [0, 1, 2, 3]
    bound = [several[0] * 24.0**-step for step in steps]
    inverse = [error / m for error, m in zip(before, clients, strict=True)]
    panels = [
        Panel("one REFINE, n = 120", "m", "Pr[error]", [
            Curve("after ONE_SHOT", clients, before), Curve("after one REFINE", clients, once),
            Curve("a true cluster is lost in ONE_SHOT", clients, lost),
            Curve("after ONE_SHOT, divided by m", clients, inverse, bound=True),
        ]),
        Panel(f"several, m = 24, n = {samples}", "R", "Pr[error]", [
            Curve("resampled data", steps, several), Curve("the same data", steps, same),
            Curve("a true cluster is lost in ONE_SHOT", steps, [missing] * 4),
            Curve("a factor 1/m for each", steps, bound, bound=True),
        ], log_x=False),
    ]  # fmt: skip
    factors = [
        f"{after / first:.3g} (m = {m})"
        if after
        else f"less than {1 / effort.trials / first:.2g} (m = {m})"
        for m, first, after in zip(clients, before, once, strict=True)
        if first
    ]
    sentences = [
        f"One REFINE multiplies Pr[error] by {', '.join(factors)}.",
        f"At m = 24, Pr[error] after 0, 1, 2, 3 REFINEs with resampled data is {_list(several)}; "
        f"with the same data {_list(same)}. ONE_SHOT loses a true cluster with probability "
        f"{missing:.3g}; at m = {clients[0]} and n = 120 with {lost[0]:.3g}, where Pr[error] after "
        f"one REFINE is {once[0]:.3g}.",
    ]
    return Figure("refine", panels, sentences)


def cluster_models(effort: Effort, seed: int = 0) -> Figure:
    """The error of the clusters' models against n, the size of a cluster and beta."""
    rng = np.random.default_rng(seed)
    trials = max(20, effort.trials // 10)

    def error(problem: Quadratics, partition: Partition, samples: int, trim: float) -> float:
        settings, target = Settings(trim=trim), problem.cluster_minimizers()
        draws = (problem.draw(samples, rng) for _ in range(trials))
        models = [settings.train(problem, partition, means).models for means in draws]
        return float(np.linalg.norm(np.stack(models) - target, axis=2).mean())

    def point(samples: int, size: int, trim: float) -> tuple[float, float]:
        problem = _problem(clients=2 * size, spread=0.0)
        bound = cluster_model_bound(
            samples, size, 2 * size, problem.dimension, trim, problem.lipschitz, problem.diameter
        )
        return error(problem, problem.truth, samples, trim), bound

    samples, sizes = effort.integers(20, 2000), effort.integers(4, 100)
    trims = np.linspace(0, 0.45, effort.points).tolist()
    grids: list[tuple[str, Sequence[float], Callable[[float], tuple[float, float]]]] = [
        ("n", samples, lambda n: point(int(n), 20, 0.1)),
        ("cluster size", sizes, lambda size: point(100, int(size), 0.1)),
        ("beta", trims, lambda trim: point(100, 20, trim)),
    ]
    panels, powers = [], []
    for name, grid, measure in grids:
        values = [measure(x) for x in grid]
        errors = [error for error, _ in values]
        panels.append(
            Panel(f"against {name}", name, "|omega_c - omega_c*|", [
                Curve("measured", grid, errors),
                Curve("Lambda, constant 1", grid, [bound for _, bound in values], bound=True),
            ], log_x=name != "beta")
        )  # fmt: skip
        if name != "beta":
            powers.append(float(np.polyfit(np.log(grid), np.log(errors), 1)[0]))
        else:
            worst = errors[-1] / errors[0]
    swapped = _problem(clients=40, spread=0.0)
    impure = Partition(np.append(swapped.truth.labels[:-4], [1, 0, 1, 0]))
    mixed = [error(swapped, impure, 100, trim) for trim in trims]
    panels[-1] = replace(
        panels[-1], curves=[*panels[-1].curves, Curve("measured, a tenth is impure", trims, mixed)]
    )
    ratio = np.median(
        [b / a for p in panels for a, b in zip(p.curves[0].y, p.curves[1].y, strict=True)]
    )
    sentences = [
        f"The error falls as n^{powers[0]:.2f} and as (cluster size)^{powers[1]:.2f}.",
        f"beta = 0.45 costs a factor {worst:.2f} over beta = 0 in pure clusters. Where a tenth of "
        f"each cluster comes from the other one, the error is {mixed[0]:.3g} for beta = 0 and "
        f"{min(mixed):.3g} at best, for beta = {trims[int(np.argmin(mixed))]:.2g}.",
        f"With the constant 1, Lambda is {ratio:.0f} times what is measured (median).",
    ]
    return Figure("cluster_models", panels, sentences)


def contractions(effort: Effort, seed: int = 0) -> Figure:
    """The distance to the minimizer against the steps, beside (1 - 1/kappa)^(T/2) D."""
    steps = effort.integers(1, 64)
    curves = []
    for kappa in (2, 10):
        problem = _problem(smoothness=float(kappa))
        means = problem.draw(100, np.random.default_rng(seed))
        gaps = [
            float(np.linalg.norm(problem.descend(means, t) - means, axis=1).max()) for t in steps
        ]
        bounds = [contraction(1.0, kappa, t) * problem.diameter for t in steps]
        curves += [
            Curve(f"measured, kappa = {kappa}", steps, gaps),
            Curve(f"bound, kappa = {kappa}", steps, bounds, bound=True),
        ]
    holds = all(
        a <= b
        for measured, bound in zip(curves[::2], curves[1::2], strict=True)
        for a, b in zip(measured.y, bound.y, strict=True)
    )
    panel = Panel("gradient descent with eta = 1/L", "T", "distance", curves, log_x=False)
    sentences = [
        f"The bound {'holds at every T' if holds else 'is broken'}. Quadratic losses contract by "
        "(1 - 1/kappa)^T, the square of what the bound grants."
    ]
    return Figure("contraction", [panel], sentences)


def kl(effort: Effort, seed: int = 0) -> Figure:
    """The KL proposition, with and without its factor d."""
    rng = np.random.default_rng(seed)
    dimensions = effort.integers(1, 128)
    measured = []
    for d in dimensions:
        difference = np.ones(d) / np.sqrt(d)
        x = rng.standard_normal((20 * effort.trials, d))
        measured.append(float(((x @ difference) ** 2 / (2 * NOISE_OF_KL**2)).mean()))
    without = [expected_kl(1.0, NOISE_OF_KL) for _ in dimensions]
    with_factor = [d * value for d, value in zip(dimensions, without, strict=True)]
    panel = Panel("E KL of two regressions, |w_i - w_j| = 1", "d", "E KL", [
        Curve("measured", dimensions, measured),
        Curve("|w_i - w_j|^2 / (2 sigma^2)", dimensions, without, bound=True),
        Curve("with the factor d", dimensions, with_factor, bound=True),
    ])  # fmt: skip
    off = max(abs(a / b - 1) for a, b in zip(measured, without, strict=True))
    sentence = f"Without the factor d the proposition is right to {off:.1%}, in every dimension."
    return Figure("kl", [panel], [sentence])


def needed_separation(effort: Effort, seed: int = 0) -> Figure:
    """The separation at which half of the runs are exact, for SR-FCA and IFCA."""
    rng, settings = np.random.default_rng(seed), Settings()
    trials = max(20, effort.trials // 10)
    samples = effort.integers(20, 1280)
    clients = 20

    def failures(samples: int, method: str) -> Callable[[float], float]:
        def share(gap: float) -> float:
            problem = Quadratics.make(clients=clients, separation=gap)
            if method != "IFCA":
                steps = int(method == "REFINE")
                return error_rates(problem, samples, settings, trials, rng, steps)[-1]
            wrong = 0
            for _ in range(trials):
                targets = problem.cluster_minimizers()
                direction = rng.standard_normal(targets.shape)
                direction /= np.linalg.norm(direction, axis=1, keepdims=True)
                starts = targets + gap / 4 * direction
                wrong += ifca(problem, problem.draw(samples, rng), starts) != problem.truth
            return wrong / trials

        return share

    curves, powers = [], {}
    for method, name in (
        ("ONE_SHOT", "ONE_SHOT"), ("REFINE", "SR-FCA, one REFINE"), ("IFCA", "IFCA, alpha = 1/4"),
    ):  # fmt: skip
        gaps = [_half(failures(n, method)) for n in samples]
        curves.append(Curve(name, samples, gaps))
        powers[name] = float(np.polyfit(np.log(samples), np.log(gaps), 1)[0])
    curves += [
        Curve("SR-FCA's remark: log(m) / n", samples,
              [sr_fca_separation(n, clients) for n in samples], bound=True),
        Curve("IFCA's analysis", samples,
              [ifca_separation(n, clients, 0.25) for n in samples], bound=True),
    ]  # fmt: skip
    panel = Panel("separation at which half of the runs are exact", "n", "eps2 - eps1", curves)
    listed = ", ".join(f"n^{power:.2f} ({name})" for name, power in powers.items())
    sentences = [
        f"The needed separation falls as {listed}; the remark has n^-1, IFCA's analysis n^-0.2."
    ]
    return Figure("separation", [panel], sentences)


FIGURES: dict[str, Callable[[Effort, int], Figure]] = {
    "one_shot": one_shot, "refine": refine, "cluster_models": cluster_models,
    "contraction": contractions, "kl": kl, "separation": needed_separation,
}  # fmt: skip
"""All figures by name."""


def _problem(**options: float) -> Quadratics:
    """Return the problem that all figures start from."""
    defaults: dict[str, float] = {"clients": 20, "separation": 1.0, "spread": 0.1}
    values = defaults | options
    clients = int(values.pop("clients"))
    return Quadratics.make(clients=clients, **values)  # type: ignore[arg-type]


def margin_of(problem: Quadratics, settings: Settings) -> float:
    """Return Delta of a problem at its best threshold."""
    return margin(
        problem.threshold, *problem.separations, problem.mu, problem.smoothness, problem.diameter,
        settings.steps,
    )  # fmt: skip


def bound_of(problem: Quadratics, samples: int, settings: Settings) -> float:
    """Return p of a problem."""
    return one_shot_bound(
        len(problem.truth), problem.dimension, samples, margin_of(problem, settings),
        problem.lipschitz,
    )  # fmt: skip


def error_rates(
    problem: Quadratics,
    samples: int,
    settings: Settings,
    trials: int,
    rng: np.random.Generator,
    refine_steps: int = 0,
    resample: bool = True,
) -> list[float]:
    """Return the share of runs whose clusters are wrong after 0 to R REFINEs.

    Args:
        problem: The clients.
        samples: n.
        settings: Settings of SR-FCA.
        trials: Number of runs.
        rng: Draws the data.
        refine_steps: R.
        resample: Draw new data before each REFINE, as the multi-step theorem does.
    """
    wrong = np.zeros(refine_steps + 1)
    for _ in range(trials):
        means = problem.draw(samples, rng)
        partition = settings.one_shot(problem, means)
        wrong[0] += partition != problem.truth
        for step in range(1, refine_steps + 1):
            if partition.num_clusters:
                means = problem.draw(samples, rng) if resample else means
                partition = settings.refine(problem, partition, means).partition
            wrong[step] += partition != problem.truth
    return [float(count) / trials for count in wrong]


def lost_clusters(
    problem: Quadratics, samples: int, settings: Settings, trials: int, rng: np.random.Generator
) -> float:
    """Return the share of runs in which a true cluster is the label of no cluster of ONE_SHOT."""
    count = problem.truth.num_clusters
    partitions = (settings.one_shot(problem, problem.draw(samples, rng)) for _ in range(trials))
    labels = (cluster_labels(partition, problem.truth) for partition in partitions)
    return sum(len(np.unique(present)) < count for present in labels) / trials


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)


def _probability(
    title: str,
    x: str,
    grid: Sequence[float],
    values: Sequence[tuple[float, float]],
    log_x: bool = True,
) -> Panel:
    curves = [
        Curve("measured", grid, [error for error, _ in values]),
        Curve("p, b2 = 1", grid, [bound for _, bound in values], bound=True),
    ]
    return Panel(title, x, "Pr[C_0 != C*]", curves, log_x)


def _between(grid: Sequence[float], rates: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return the points whose rates are neither 0 nor close to 1, for a fit of logarithms."""
    kept = [(x, rate) for x, rate in zip(grid, rates, strict=True) if 0 < rate < 0.5]
    return [x for x, _ in kept], [rate for _, rate in kept]


def _half(failures: Callable[[float], float], low: float = 0.02, high: float = 8.0) -> float:
    """Return where a falling probability crosses one half, by bisection of the logarithm."""
    for _ in range(9):
        middle = float(np.sqrt(low * high))
        if failures(middle) > 0.5:
            low = middle
        else:
            high = middle
    return float(np.sqrt(low * high))
