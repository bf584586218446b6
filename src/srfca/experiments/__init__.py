"""Experiments: data, a model and the parameters of every method, and how they are run.

``config.load`` reads an experiment, ``compare.compare`` runs methods side by side on it, and
``tune.tune`` searches parameters of SR-FCA.
"""
