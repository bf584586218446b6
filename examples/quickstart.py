"""SR-FCA on 40 clients with rotated digits, from data to a saved result.

python examples/quickstart.py
"""

from tempfile import TemporaryDirectory

from srfca import SRFCA, LocalTraining, Result, Simulation, data, models

clients = data.rotated_digits(num_clients=40, seed=0)
federation = Simulation(clients, models.mlp(64, 64, 10))
result = SRFCA(local=LocalTraining(steps=200, batch_size=10, lr=0.5)).fit(federation, seed=0)
print(result.summary())
print(result.history[0].notes["reason"])

scores = result.scores(federation)
assert scores.accuracy is not None
print(f"test accuracy {scores.accuracy.mean():.1%}, worst client {scores.accuracy.min():.1%}")

newcomers = Simulation(data.rotated_digits(num_clients=8, seed=1), models.mlp(64, 64, 10))
print("new clients belong to clusters", result.assign(newcomers).labels)

with TemporaryDirectory() as folder:
    print(Result.load(result.save(folder)))
