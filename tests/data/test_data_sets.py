"""Data sets by name: right from any of their files, and one clear line for whatever is wrong with them."""

import contextlib
import functools
import gzip
import hashlib
import http.server
import io
import os
import re
import struct
import tarfile
import threading
from pathlib import Path

import numpy as np
import pytest

import posteriax as px
from posteriax.data.sets import fetching, imdb, physionet, uci
from posteriax.data.sets import images as image_sets
from posteriax.data.sets.data_set import Scaling
from posteriax.data.sets.fetching import DataError, Remote, fetch, read_archive

BODY = np.random.default_rng(0).bytes(1_000_000)
MD5 = f"md5:{hashlib.md5(BODY).hexdigest()}"


class Handler(http.server.BaseHTTPRequestHandler):
    """/whole, which is compressed for who accepts that, /resumed (with ranges) and /cut, whose every answer ends after
    300,000 bytes; nothing else is there."""

    seen: list

    def do_GET(self):
        first = int(self.headers.get("Range", "bytes=0-")[6:-1])
        self.seen.append((self.path, first))
        if self.path not in ("/whole", "/cut", "/resumed"):
            return self.send_error(404)
        ranged = first > 0 and self.path != "/whole"
        body = BODY[first:] if ranged else BODY
        self.send_response(206 if ranged else 200)
        if self.path == "/whole" and "gzip" in self.headers.get("Accept-Encoding", ""):
            body = gzip.compress(body, 1)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        sent = {"/whole": len(body), "/cut": 300_000, "/resumed": 400_000}[self.path]
        with contextlib.suppress(OSError):  # the other side has had enough
            self.wfile.write(body[:sent])

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    handler = type("Own", (Handler,), {"seen": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=functools.partial(server.serve_forever, poll_interval=0.01), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", handler.seen
        server.shutdown()


def test_a_download_appears_whole_and_once(server, tmp_path):
    address, seen = server
    remote = Remote("file.bin", f"{address}/whole", MD5)
    assert fetch(remote, tmp_path).read_bytes() == BODY
    fetch(remote, tmp_path)
    assert seen == [("/whole", 0)]
    assert os.listdir(tmp_path) == ["file.bin"]


def test_a_broken_download_goes_on_where_it_stopped(server, tmp_path):
    address, seen = server
    assert fetch(Remote("file.bin", f"{address}/resumed", MD5), tmp_path).read_bytes() == BODY
    np.testing.assert_allclose([first for _, first in seen], [0, 400_000, 800_000], atol=2 * fetching.BLOCK)
    assert os.listdir(tmp_path) == ["file.bin"]


def test_a_download_that_never_ends_is_kept_for_the_next_call(server, tmp_path, monkeypatch):
    address, seen = server
    monkeypatch.setattr(fetching, "ATTEMPTS", 2)
    with pytest.raises(DataError, match=r"file.bin could not be downloaded .* [56]\d\d,\d\d\d bytes are kept"):
        fetch(Remote("file.bin", f"{address}/cut", MD5), tmp_path)
    assert os.listdir(tmp_path) == ["file.bin.part"]
    assert fetch(Remote("file.bin", f"{address}/cut", MD5), tmp_path).read_bytes() == BODY
    np.testing.assert_allclose([first for _, first in seen], [0, 300_000, 600_000, 900_000], atol=3 * fetching.BLOCK)


def test_a_wrong_checksum_leaves_nothing_behind(server, tmp_path):
    wrong = "md5:" + "0" * 32
    with pytest.raises(DataError, match=r"its checksum is wrong. The download was discarded"):
        fetch(Remote("file.bin", f"{server[0]}/whole", wrong), tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_file_that_is_not_there_is_named(server, tmp_path):
    with pytest.raises(DataError, match=r"could not be downloaded from .*: the server answers 404. Put file.bin"):
        fetch(Remote("file.bin", f"{server[0]}/gone", MD5), tmp_path)
    assert os.listdir(tmp_path) == []


def test_without_a_network_it_says_which_file_to_put_where(tmp_path):
    with pytest.raises(DataError, match=rf"no connection. Put file.bin into {tmp_path} yourself"):
        fetch(Remote("file.bin", "http://127.0.0.1:9/file.bin", MD5), tmp_path)  # a port that nothing listens on
    with pytest.raises(DataError, match="no connection"):
        fetch(Remote("file.bin", "http://127.0.0.1:9/file.bin", MD5), tmp_path / "new" / "inside")
    assert os.listdir(tmp_path) == []


def test_a_file_without_a_checksum_is_not_downloaded(tmp_path):
    with pytest.raises(DataError, match="download it from http://somewhere and put it there"):
        fetch(Remote("file.bin", "http://somewhere", None), tmp_path)


def test_a_folder_that_cannot_be_written_to_is_named(server, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DataError, match=r"file.bin cannot be written to"):
        fetch(Remote("file.bin", f"{server[0]}/whole", MD5), tmp_path / "file" / "inside")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("fashion-mnist", "fashion_mnist"), ("CIFAR10", "cifar10 or cifar100"), ("boston", "uci/boston")],
)
def test_an_unknown_name_comes_with_the_nearest_ones(name, nearest):
    with pytest.raises(ValueError, match=rf"there is no data set '{name}'. Did you mean {nearest}"):
        px.data.load(name)


def test_an_unknown_option_comes_with_the_known_ones():
    with pytest.raises(TypeError, match="mnist has no option 'split'; it has dtype"):
        px.data.load("mnist", split=3)
    with pytest.raises(ValueError, match=r"dtype must be .* got 'int8'"):
        px.data.load("mnist", dtype="int8")


def test_a_data_set_prints_what_it_holds_and_is_not_taken_for_a_pair():
    data = px.data.load("two_moons", train=1000)
    assert repr(data) == "two_moons: 1,000 training and 500 test examples, x (2,) float32, 2 classes: upper, lower"
    curve = px.data.load("curve_with_gap", train=20)
    assert repr(curve) == "curve_with_gap: 20 training and 1,000 test examples, x (1,) float32, regression"
    problem = px.Problem((lambda w, x: x @ w, np.zeros((2, 2), np.float32)), px.Categorical())
    with pytest.raises(TypeError, match=r"data must be a pair \(x, y\), got DataSet: give its .train"):
        px.fit(problem, data, px.MAP(), steps=1, key=0)


def idx(array):
    header = struct.pack(">BBBB", 0, 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(header + array.astype(np.uint8).tobytes())


@pytest.fixture
def mnist_files(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.integers(256, size=(6, 28, 28)),
        "y_train": rng.integers(10, size=6),
        "x_test": rng.integers(256, size=(3, 28, 28)),
        "y_test": rng.integers(10, size=3),
    }
    folder = tmp_path / "mnist"
    folder.mkdir()
    for part, file in image_sets.IDX_FILES.items():
        (folder / file).write_bytes(idx(arrays[part]))
    return tmp_path, arrays


def test_the_public_files_and_arrays_give_the_same(mnist_files, tmp_path_factory):
    folder, arrays = mnist_files
    other = tmp_path_factory.mktemp("arrays")
    np.savez(other / "mnist.npz", **{name: a.astype(np.uint8) for name, a in arrays.items()})
    from_files, from_arrays = px.data.load("mnist", folder=folder), px.data.load("mnist", folder=other)
    for one, two in ((from_files.train, from_arrays.train), (from_files.test, from_arrays.test)):
        np.testing.assert_array_equal(one[0], two[0])
        np.testing.assert_array_equal(one[1], two[1])
    np.testing.assert_allclose(from_files.train[0], arrays["x_train"] / 255, atol=1e-7)
    as_bytes = px.data.load("mnist", folder=folder, dtype="uint8").train[0]
    assert as_bytes.dtype == np.uint8
    np.testing.assert_array_equal(as_bytes, arrays["x_train"])


@pytest.mark.parametrize(
    "damage", [lambda b: b[: len(b) // 2], lambda b: b"no gzip", lambda b: gzip.compress(b"no idx")]
)
def test_a_damaged_public_file_is_named(mnist_files, damage):
    path = mnist_files[0] / "mnist" / image_sets.IDX_FILES["x_train"]
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=rf"{path.name} is damaged"):
        px.data.load("mnist", folder=mnist_files[0])


def test_damaged_and_incomplete_arrays_are_named(tmp_path):
    (tmp_path / "mnist.npz").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(DataError, match=r"mnist.npz is damaged and cannot be read"):
        px.data.load("mnist", folder=tmp_path)
    np.savez(tmp_path / "mnist.npz", x_train=np.zeros(3))
    with pytest.raises(DataError, match=r"mnist.npz has no array y_train, x_test, y_test; it has x_train"):
        px.data.load("mnist", folder=tmp_path)


def bad_images(**changes):
    good = {f"x_{p}": np.zeros((5, 32, 32, 3), np.uint8) for p in ("train", "test")}
    return {"cifar10": good | {f"y_{p}": np.zeros(5, np.uint8) for p in ("train", "test")} | changes}


BAD_ARRAYS = {
    "channels first": (
        bad_images(x_test=np.zeros((5, 3, 32, 32), np.uint8)),
        r"x_test of cifar10 must be bytes \(uint8\) of shape \(N, 32, 32, 3\), got uint8 \(5, 3, 32, 32\)",
    ),
    "scaled already": (bad_images(x_train=np.zeros((5, 32, 32, 3), np.float32)), "x_train of cifar10 must be bytes"),
    "too few labels": (bad_images(y_train=np.zeros(4, np.uint8)), r"y_train of cifar10 must be 5 whole numbers"),
    "unknown labels": (bad_images(y_train=np.full(5, 10)), "y_train of cifar10 must have labels from 0 to 9"),
    "reviews": (
        {"imdb": {name: np.zeros(3, np.uint8) for name in imdb.ARRAYS}},
        r"offsets_train of imdb.npz do not divide its 3 tokens into 3 reviews",
    ),
    "stays": (
        {"physionet2012": {name: np.zeros(3) for name in physionet.ARRAYS}},
        r"x_a of physionet2012.npz must have shape \(3, 48, 3\), got \(3,\)",
    ),
    "rows": (
        {
            "uci_regression": {
                "energy__x": np.zeros((5, 8)),
                "energy__y": np.zeros(5),
                "energy__train": np.array([[0, 9]]),
                "energy__test": np.array([[1]]),
            }
        },
        "the training rows of split 0 of energy are not rows of its 5 examples",
    ),
}


@pytest.mark.parametrize(("files", "error"), BAD_ARRAYS.values(), ids=BAD_ARRAYS)
def test_arrays_of_the_wrong_shape_are_named(files, error, tmp_path):
    ((stem, arrays),) = files.items()
    np.savez(tmp_path / f"{stem}.npz", **arrays)
    with pytest.raises(DataError, match=error):
        px.data.load("uci/energy" if stem == "uci_regression" else stem, folder=tmp_path)


@pytest.mark.parametrize("name", ["uci/energy", "imdb", "physionet2012", "cifar100"])
def test_damaged_arrays_are_named(name, tmp_path):
    stem = "uci_regression" if name == "uci/energy" else name
    (tmp_path / f"{stem}.npz").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(DataError, match=rf"{stem}.npz is damaged and cannot be read"):
        px.data.load(name, folder=tmp_path)
    (tmp_path / f"{stem}.npz").write_bytes(b"<html>Not found</html>")
    with pytest.raises(DataError, match=rf"{stem}.npz is damaged and cannot be read \(not an NPZ file of plain arrays"):
        px.data.load(name, folder=tmp_path)


def archive(path, files):
    with tarfile.open(path, "w:gz") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def test_an_archive_with_any_byte_changed_or_cut_off_is_never_read(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "files.tar.gz"
    archive(path, {f"{i}.bin": rng.integers(40, size=3000, dtype=np.uint8).tobytes() for i in range(3)})
    whole = path.read_bytes()
    changed = [whole[:i] + bytes([whole[i] ^ 255]) + whole[i + 1 :] for i in range(20, len(whole), len(whole) // 50)]
    for data in [*changed, *(whole[:-n] for n in (1, 8, 9, 100, len(whole) // 2))]:
        path.write_bytes(data)
        with pytest.raises(DataError, match=r"files.tar.gz is damaged .*: delete it, and load again"):
            list(read_archive(path, lambda name: name.endswith(".bin")))


def test_cifar_is_read_from_its_binary_archive(tmp_path):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(256, size=(6, 32, 32, 3), dtype=np.uint8), np.arange(6, dtype=np.uint8)
    records = np.concatenate([labels[:, None], images.transpose(0, 3, 1, 2).reshape(6, -1)], axis=1)
    names = [*image_sets.CIFAR_TRAIN["cifar10"], *image_sets.CIFAR_TEST["cifar10"]]
    files = {f"cifar-10-batches-bin/{name}": row.tobytes() for name, row in zip(names, records, strict=True)}
    archive(tmp_path / "cifar-10-binary.tar.gz", files)
    data = px.data.load("cifar10", folder=tmp_path)
    np.testing.assert_allclose(data.train[0], images[:5] / 255, atol=1e-7)
    assert (data.train[1].tolist(), data.test[1].tolist()) == ([0, 1, 2, 3, 4], [5])
    del files["cifar-10-batches-bin/data_batch_3.bin"]
    archive(tmp_path / "cifar-10-binary.tar.gz", files)
    with pytest.raises(DataError, match=r"has no data_batch_3.bin"):
        px.data.load("cifar10", folder=tmp_path)
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(b"damaged")
    with pytest.raises(DataError, match=r"cifar-10-binary.tar.gz is damaged"):
        px.data.load("cifar10", folder=tmp_path)


def test_uci_splits_from_text_files_are_standardised_by_the_training_part(tmp_path):
    rng = np.random.default_rng(0)
    table = rng.normal(3.0, 2.0, size=(20, 4))
    folder = tmp_path / "concrete" / "data"
    folder.mkdir(parents=True)
    texts = {"data": table, "n_splits": [2], "index_features": [0, 1, 2], "index_target": [3]}
    for split, order in enumerate((np.arange(20), np.arange(20)[::-1])):
        texts |= {f"index_train_{split}": order[:15], f"index_test_{split}": order[15:]}
    for name, values in texts.items():
        np.savetxt(folder / f"{name}.txt", values)
    data = px.data.load("uci/concrete", folder=tmp_path, split=1)
    rows = np.arange(20)[::-1][:15]
    np.testing.assert_allclose(data.train[0].mean(axis=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(data.target_scaling.undo(data.train[1]), table[rows, 3], rtol=1e-5)
    np.testing.assert_allclose(
        data.test[0], (table[:5, :3][::-1] - table[rows, :3].mean(0)) / table[rows, :3].std(0), rtol=1e-4
    )
    with pytest.raises(ValueError, match="split must be a whole number between 0 and 1, got 2"):
        px.data.load("uci/concrete", folder=tmp_path, split=2)
    with pytest.raises(DataError, match=r"energy is not in .*: put the folder UCI_Datasets/energy of"):
        px.data.load("uci/energy", folder=tmp_path)


def test_missing_measurements_do_not_move_the_standardisation(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(5.0, 3.0, size=(40, 48, 37)).astype(np.float32)
    x[rng.random(x.shape) < 0.8] = np.nan
    static = rng.normal(size=(40, 4)).astype(np.float32)
    y = rng.integers(2, size=40)
    names = {"variables": np.array([f"v{i}" for i in range(37)]), "static_names": np.array(list("abcd"))}
    np.savez(tmp_path / "physionet2012.npz", x_a=x, static_a=static, y_a=y, x_b=x, static_b=static, y_b=y, **names)
    inputs = px.data.load("physionet2012", folder=tmp_path).train[0]
    seen = inputs["observed"] == 1
    np.testing.assert_array_equal(seen, np.isfinite(x))
    assert np.all(inputs["values"][~seen] == 0)
    assert abs(inputs["values"][seen].mean()) < 0.05 and abs(inputs["values"][seen].std() - 1) < 0.05


@pytest.mark.slow
def test_imdb_numbers_words_by_frequency(tmp_path, monkeypatch):
    texts = {"train": ("good film<br />good end", "bad film"), "test": ("good unheard film", "bad")}
    reviews = {}
    for part, (good, bad) in texts.items():
        for i in range(12_500):
            reviews[f"aclImdb/{part}/pos/{i}_9.txt"] = good.encode()
            reviews[f"aclImdb/{part}/neg/{i}_2.txt"] = bad.encode()
    archive(tmp_path / "aclImdb_v1.tar.gz", reviews)
    data = px.data.load("imdb", folder=tmp_path, length=5)
    # good and film are equally frequent: by the alphabet then
    numbers = {"film": 3, "good": 4, "bad": 5, "end": 6}
    good, bad = data.train[0][data.train[1] == 1][0], data.train[0][data.train[1] == 0][0]
    assert good.tolist() == [imdb.START, *(numbers[word] for word in ["good", "film", "good", "end"])]
    assert bad.tolist() == [0, 0, imdb.START, numbers["bad"], numbers["film"]]
    assert data.test[0][data.test[1] == 1][0].tolist() == [
        0,
        imdb.START,
        numbers["good"],
        imdb.UNKNOWN,
        numbers["film"],
    ]


def test_stays_and_outcomes_are_read_from_the_public_files(tmp_path):
    stay = "Time,Parameter,Value\n00:00,RecordID,{0}\n00:00,Age,{1}\n01:30,HR,{2}\n"
    for part, first in (("a", 1), ("b", 3)):
        stays = {f"set-{part}/{i}.txt": stay.format(i, 50 + i, 60 + i).encode() for i in (first, first + 1)}
        archive(tmp_path / f"set-{part}.tar.gz", stays)
        rows = f"{first + 1},6,1,5,-1,0\n{first},16,8,8,-1,1\n"  # in another order than the archive
        header = "RecordID,SAPS-I,SOFA,Length_of_stay,Survival,In-hospital_death\n"
        (tmp_path / f"Outcomes-{part}.txt").write_text(header + rows)
    data = px.data.load("physionet2012", folder=tmp_path)
    assert (data.train[1].tolist(), data.test[1].tolist()) == ([0, 1], [0, 1])
    heart = data.features.index("HR")
    # of rates 62 and 61, whose mean is 61.5 and deviation 0.5
    np.testing.assert_allclose(data.train[0]["values"][:, 1, heart], [1.0, -1.0])
    np.testing.assert_allclose(data.test[0]["values"][:, 1, heart], [5.0, 3.0])
    (tmp_path / "Outcomes-b.txt").write_text("not,a,table\n1,2\n")
    with pytest.raises(DataError, match=r"Outcomes-b.txt is damaged"):
        px.data.load("physionet2012", folder=tmp_path)


def test_classes_and_columns_have_names():
    assert [len(set(names)) for names in image_sets.CIFAR_CLASSES.values()] == [10, 100]
    assert image_sets.CIFAR_CLASSES["cifar100"] == tuple(
        sorted(image_sets.CIFAR_CLASSES["cifar100"])
    )  # its labels follow the alphabet
    assert uci.FEATURES.keys() == uci.FOLDERS.keys()
    assert all(len(set(names)) == len(names) for names in uci.FEATURES.values())


REAL = os.environ.get("POSTERIAX_DATA")
UCI = ("boston", "concrete", "energy", "naval", "power", "protein", "wine")


def real(stem):
    if not REAL or not (Path(REAL) / f"{stem}.npz").exists():
        pytest.skip(f"no {stem}.npz in POSTERIAX_DATA")
    return np.load(Path(REAL) / f"{stem}.npz")


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("mnist", (60_000, 10_000)),
        ("fashion_mnist", (60_000, 10_000)),
        ("imdb", (25_000, 25_000)),
        ("physionet2012", (4_000, 4_000)),
    ],
)
def test_real_data_have_their_official_split(name, sizes):
    real(name)
    data = px.data.load(name)
    assert (len(data.train[1]), len(data.test[1])) == sizes
    assert set(np.unique(data.test[1])) == set(range(len(data.classes)))


@pytest.mark.parametrize("name", UCI)
def test_all_splits_of_real_tables_are_standardised_by_their_training_rows(name):
    arrays, own = real("uci_regression"), uci.FOLDERS[name]
    x, y, trains, tests = (arrays[f"{own}__{part}"] for part in ("x", "y", "train", "test"))
    assert len(trains) == (5 if name == "protein" else 20)
    for split, (train, test) in enumerate(zip(trains, tests, strict=True)):
        data = px.data.load(f"uci/{name}", split=split)
        assert sorted([*train, *test]) == list(range(len(y)))
        scale = x[train].std(axis=0)
        expected = (x[test] - x[train].mean(axis=0)) / np.where(scale > 1e-12, scale, 1.0)
        np.testing.assert_allclose(data.test[0], expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(data.test[1], (y[test] - y[train].mean()) / y[train].std(), rtol=1e-4, atol=1e-4)
    assert data.features == uci.FEATURES[name]


@pytest.mark.slow
def test_the_examples_of_the_page_run(tmp_path, monkeypatch):
    """As printed, but for the network: LeNet, which is called in the same way, compiles in seconds."""
    page = Path(__file__).parents[2] / "docs" / "data.md"
    rng = np.random.default_rng(0)
    arrays = {f"x_{part}": rng.integers(256, size=(32, 32, 32, 3), dtype=np.uint8) for part in ("train", "test")}
    np.savez(tmp_path / "cifar10.npz", **arrays, y_train=np.arange(32) % 10, y_test=np.arange(32) % 10)
    monkeypatch.setenv("POSTERIAX_DATA", str(tmp_path))
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert len(blocks) >= 5
    space = {}
    for block in blocks:
        exec(compile(block.replace("resnet20", "lenet"), str(page), "exec"), space)
    assert space["posterior"].predict(space["data"].test[0]).probs.shape == (32, 10)


def test_all_missing_files_of_a_set_are_named(tmp_path, monkeypatch):
    nowhere = {name: ("http://127.0.0.1:9/none", sums) for name, (_, sums) in image_sets.IDX_SOURCES.items()}
    monkeypatch.setattr(image_sets, "IDX_SOURCES", nowhere)
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").write_bytes(b"here")
    message = "Also missing there: train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz$"
    with pytest.raises(DataError, match=message):
        px.data.load("mnist", folder=tmp_path)


def test_columns_are_standardised_whatever_their_unit():
    x = np.random.default_rng(0).normal(size=(50, 2)) * [1.0, 0.0] + [0.0, 0.1]  # the second is constant
    one, other = (Scaling.of(unit * x) for unit in (1.0, 2.0**-60))
    np.testing.assert_array_equal(other.apply(2.0**-60 * x)[:, 0], one.apply(x)[:, 0])
    np.testing.assert_array_equal(one.scale, [x[:, 0].std(), 1.0])
