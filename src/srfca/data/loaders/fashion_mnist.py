"""Fashion-MNIST: articles of clothing, in the format of MNIST.

Xiao, Rasul, Vollgraf: Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning
Algorithms, 2017.
"""

from __future__ import annotations

from srfca.data.loaders.idx import IdxImages
from srfca.data.loaders.publication import register_publication

DEBIAN_FOLDER = "/usr/share/datasets/fashion-mnist"
"""Where Debian's package dataset-fashion-mnist installs the files, compressed again."""
FASHION_MNIST = IdxImages(
    name="fashion_mnist",
    title="Fashion-MNIST",
    subfolders=(
        "FashionMNIST/raw",
        "fashion-mnist",
        "fashion_mnist",
        "FashionMNIST",
        "fashion-mnist/data/fashion",
        DEBIAN_FOLDER,
    ),
    url="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    hashes={
        "train-images-idx3-ubyte.gz": "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "md5:25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "md5:bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "md5:bb300cfdad3c16e7a12a480ee83cd310",
    },
)
PUBLICATION = register_publication(FASHION_MNIST.publication)
load = FASHION_MNIST.load
