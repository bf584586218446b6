"""MNIST: handwritten digits.

LeCun, Cortes, Burges: The MNIST database of handwritten digits, 1998.
"""

from __future__ import annotations

from srfca.data.loaders.idx import IdxImages
from srfca.data.loaders.publication import register_publication

MNIST = IdxImages(
    name="mnist",
    title="MNIST",
    subfolders=("MNIST/raw", "mnist", "MNIST", ""),
    url="https://ossci-datasets.s3.amazonaws.com/mnist/",
    hashes={
        "train-images-idx3-ubyte.gz": "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte.gz": "md5:d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte.gz": "md5:9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte.gz": "md5:ec29112dd5afa0611ce80d1b7f02629c",
    },
)
PUBLICATION = register_publication(MNIST.publication)
load = MNIST.load
