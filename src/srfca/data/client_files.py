"""Load your own data: a file with a client column, or a folder with a file for each client.

``.csv`` and ``.parquet`` files hold columns, ``.npz`` files arrays, with an entry for each sample:

- ``client``, the client that has the sample: strings or whole numbers. In a folder, each file is a
  client, and the file's name is the client id.
- ``y``, the target: strings are classes, and so are whole numbers; floats are values.
- All columns with other names are features. If there is an array ``x``, it is the only one: in an
  .npz file always, in a .parquet file as a column of lists.
- ``split`` (optional): "train" or "test", or 0 for training and 1 for testing. An .npz file in a
  folder can have ``x_test`` and ``y_test`` instead.
- ``cluster`` (optional): the client's true cluster, to compare with.

Other names can be given for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from srfca.data.client_data import ClientData
from srfca.data.file_tables import Names, prefixed, read_file
from srfca.data.folder_tables import read_folder
from srfca.data.frames import MissingValues
from srfca.data.schema import TargetKind
from srfca.errors import require


def load(
    path: str | Path,
    *,
    client: str | None = None,
    target: str | None = None,
    features: Sequence[str] | None = None,
    test: str | float | None = None,
    cluster: str | None = None,
    target_kind: TargetKind | None = None,
    standardize: bool | None = None,
    missing: MissingValues = "error",
    seed: int = 0,
) -> ClientData:
    """Load the clients of a .csv, .parquet or .npz file, or of a folder of these.

    Args:
        path: The file or folder; see the module's documentation for its contents.
        client: The column that names the client of each row; None is "client".
        target: The column to predict; None is "y".
        features: The feature columns; None is "x" if that is an array, else all columns without
            another purpose.
        test: A column, or the fraction of each client's rows to draw for testing; None is the
            column "split", if there is one.
        cluster: The column of true clusters; None is "cluster", if there is one.
        target_kind: As in ``ClientData.from_frame``.
        standardize: As in ``ClientData.from_frame``.
        missing: As in ``ClientData.from_frame``.
        seed: Decides which rows are drawn for testing.

    Returns:
        The clients in the order of their first samples; the clients of a folder in alphabetical
        order.

    Raises:
        InputError: If something is missing, unknown, inconsistent or damaged. The message names the
            file and, where possible, the column or the client.

    Examples:
        >>> import numpy as np
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     np.savez(f"{folder}/a.npz", x=np.ones((4, 3)), y=[0, 1, 0, 1], client=[7, 7, 8, 8])
        ...     load(f"{folder}/a.npz").client_ids
        ('7', '8')
    """
    path = Path(path)
    require(path.exists(), f"there is no file or folder {path}")
    names = Names(client, target, features, test, cluster)
    table, columns = (read_folder if path.is_dir() else read_file)(path, names)
    with prefixed(path):
        return ClientData.from_frame(
            table, **columns, target_kind=target_kind, standardize=standardize,
            missing=missing, seed=seed,
        )  # fmt: skip
