"""Examples at the end of ``--help``, by command: what each does, and the line to type."""

from __future__ import annotations

EXAMPLES: dict[str, list[tuple[str, str]]] = {
    "srfca": [
        ("What there is to run", "srfca list"),
        ("Methods side by side, on data that need no download", "srfca compare rotated-digits"),
        ("Clusters of your own table", "srfca run --data flights.csv --client dest --target delay"),
        ("Complete commands and names with the tab key", "srfca --install-completion"),
    ],
    "srfca list": [
        ("Experiments, methods and data sets", "srfca list"),
        ("The same for other programs", "srfca list --json"),
    ],
    "srfca run": [
        ("SR-FCA, stage by stage", "srfca run rotated-digits"),
        ("Another method, another seed", "srfca run rotated-digits --method ifca --seed 3"),
        (
            "Your table; keep the result, and write a report",
            "srfca run --data flights.csv --client dest --target delay --out flights "
            "--report flights.html",
        ),
        ("Change settings", "srfca run rotated-digits --set trim=0.2 --set lr=0.3"),
        ("A run that survives being killed", "srfca run rotated-mnist --out mnist --journal"),
        ("On the machines of a Ray cluster", "srfca run rotated-mnist --ray 10.0.0.1:6379"),
    ],
    "srfca resume": [
        ("Continue 'srfca run rotated-mnist --out mnist --journal'", "srfca resume mnist"),
        ("The same on another Ray cluster", "srfca resume mnist --ray 10.0.0.2:6379"),
    ],
    "srfca compare": [
        ("The methods of an experiment, over five seeds", "srfca compare rotated-digits --seeds 5"),
        (
            "Chosen methods; keep the runs, and write a table for a paper",
            "srfca compare rotated-digits --methods sr-fca,ifca,global --k 3,4,5 --out runs "
            "--table digits.tex",
        ),
        (
            "Two variants of one method",
            "srfca compare rotated-digits --methods sr-fca,sr-fca:trim=0.2",
        ),
        (
            "Your table, with a report",
            "srfca compare --data flights.csv --client dest --target delay --report flights.html",
        ),
    ],
    "srfca reproduce": [
        ("All of the paper's experiments, three seeds each", "srfca reproduce --out results"),
        ("One of them, as a quick check", "srfca reproduce synthetic --quick --seeds 1"),
        ("Which runs are there, and which are missing", "srfca reproduce --list"),
    ],
    "srfca stress": [
        ("Every attack, by a fifth of the clients", "srfca stress rotated-digits"),
        (
            "One attack by a tenth of them, on chosen methods",
            "srfca stress rotated-digits --attacks sign-flip --fraction 0.1 "
            "--methods sr-fca,global",
        ),
    ],
    "srfca tune": [
        (
            "Twenty settings of SR-FCA, on validation data",
            "srfca tune rotated-digits --out search",
        ),
        (
            "Any other method, with the same budget",
            "srfca tune rotated-digits --method ditto --trials 20 --seeds 3",
        ),
    ],
    "srfca predict": [
        ("Print predictions as CSV", "srfca predict flights new.csv"),
        ("Write them to a file", "srfca predict flights new.csv --out predictions.csv"),
    ],
    "srfca assign": [
        ("Clusters of newcomers, and how sure they are", "srfca assign flights new.csv"),
    ],
    "srfca export": [
        ("One safetensors file for each cluster", "srfca export flights"),
        ("As ONNX, in a folder of your choice", "srfca export flights --format onnx --out models"),
        ("The model of one client, for torch", "srfca export flights --format torch --client ATL"),
    ],
    "srfca report": [
        ("report.html in the folder of the run", "srfca report flights"),
        ("A page about all runs of a comparison", "srfca report runs --output comparison.html"),
    ],
    "srfca figure": [
        ("Which charts there are", "srfca figure flights --list"),
        ("One of them, for a paper", "srfca figure flights map --output map.pdf"),
    ],
    "srfca watch": [
        ("Follow a run that was started with --out flights", "srfca watch flights --open"),
    ],
    "srfca theory": [
        ("Every bound of the paper, with figures", "srfca theory --out figures"),
        ("One of them, quickly", "srfca theory one_shot --quick"),
    ],
    "srfca data": [
        ("Which data sets are on disk", "srfca data check"),
    ],
    "srfca data check": [
        ("In the default folder", "srfca data check"),
        ("In another one", "srfca data check --data-dir /data"),
    ],
    "srfca data get": [
        ("Download MNIST, once for all experiments", "srfca data get mnist"),
    ],
    "srfca bench": [
        ("The benchmarks of the field", "srfca bench field"),
    ],
    "srfca bench field": [
        ("Label skew, outliers and noise, five seeds", "srfca bench field --seeds 5 --out runs"),
        ("One federation", "srfca bench field --only fashion-outliers --seeds 1"),
    ],
    "srfca flower": [
        ("Start an app for real clients", "srfca flower new my-app"),
    ],
    "srfca flower new": [
        ("A Flower app that runs at once, in the folder my-app", "srfca flower new my-app"),
    ],
}  # fmt: skip
"""By the command."""
