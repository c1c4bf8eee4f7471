"""Exported programs that would run code: refused, and nothing is run."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from small_files import Payload, export, is_harmful, same, some_images, tiny_net

from deformrs.errors import InputError
from deformrs.models import load_model
from deformrs.models.exported_archive import clean_copy

PROGRAM = "models/model.json"
SAMPLES = "data/sample_inputs/model.pt"
WEIGHTS = "data/weights/model_weights_config.json"
CONSTANTS = "data/constants/model_constants_config.json"

Records = dict[str, bytes]


def rewrite(path: Path, change: Callable[[Records], None]) -> Path:
    """The archive with other content."""
    with zipfile.ZipFile(path) as archive:
        root = archive.namelist()[0].partition("/")[0]
        records = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    change(records)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in records.items():
            archive.writestr(f"{root}/{name}", content)
    return path


@pytest.mark.filterwarnings("ignore:The given buffer is not writable")  # torch 2.11
def test_the_clean_copy_is_loaded_as_torch_does(tmp_path: Path) -> None:
    """The attacks below would work: torch loads a file that was rewritten without complaint."""
    path = rewrite(export(tmp_path / "a.pt2", tiny_net()), lambda records: None)
    program = torch.export.load(clean_copy(path))
    torch.testing.assert_close(
        program.module()(some_images()), torch.export.load(path).module()(some_images())
    )


def payload(target: Path) -> bytes:
    buffer = io.BytesIO()
    torch.save(Payload(target), buffer)
    return buffer.getvalue()


def change_json(name: str, change: Callable[[dict[str, Any]], None]) -> Callable[[Records], None]:
    def changed(records: Records) -> None:
        content = json.loads(records[name])
        change(content)
        records[name] = json.dumps(content).encode()

    return changed


def pickled_weight(target: Path) -> Callable[[Records], None]:
    def change(records: Records) -> None:
        def mark(listing: dict[str, Any]) -> None:
            next(iter(listing["config"].values()))["use_pickle"] = True

        change_json(WEIGHTS, mark)(records)
        records["data/weights/weight_0"] = payload(target)

    return change


def pickled_constant(target: Path) -> Callable[[Records], None]:
    def change(records: Records) -> None:
        entry = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True}
        listing = {"config": {"hidden": entry | {"tensor_meta": None}}}
        records[CONSTANTS] = json.dumps(listing).encode()
        records["data/constants/opaque_obj_0"] = pickle.dumps(Payload(target))

    return change


def formula(target: Path) -> Callable[[Records], None]:
    code = f"__import__('os').mkdir({str(target)!r})"

    def change(program: dict[str, Any]) -> None:
        values = program["graph_module"]["graph"]["tensor_values"]
        for value in values.values():
            value["sizes"] = [{"as_expr": {"expr_str": code, "hint": None}} for _ in value["sizes"]]

    return change_json(PROGRAM, change)


def called_function(target: Path) -> Callable[[Records], None]:
    def change(program: dict[str, Any]) -> None:
        node = program["graph_module"]["graph"]["nodes"][0]
        node["target"] = "torch.os.mkdir"
        node["inputs"] = [{"name": "path", "arg": {"as_string": str(target)}, "kind": 1}]

    return change_json(PROGRAM, change)


def saved_tensor(target: Path) -> Callable[[Records], None]:
    def change(program: dict[str, Any]) -> None:
        node = program["graph_module"]["graph"]["nodes"][0]
        node["target"] = "torch.ops.aten.save.default"

    return change_json(PROGRAM, change)


def name_as_code(target: Path) -> Callable[[Records], None]:
    def change(program: dict[str, Any]) -> None:
        graph = program["graph_module"]["graph"]
        graph["inputs"][-1]["as_tensor"]["name"] = f"x=__import__('os').mkdir({str(target)!r})"

    return change_json(PROGRAM, change)


def imported_type(target: Path) -> Callable[[Records], None]:
    def change(program: dict[str, Any]) -> None:
        context = {"__enum__": True, "fqn": "antigravity:x", "name": "x"}
        spec = {"type": "builtins.tuple", "context": json.dumps(context), "children_spec": []}
        entry = program["graph_module"]["module_call_graph"][0]
        entry["signature"]["in_spec"] = json.dumps([1, spec])

    return change_json(PROGRAM, change)


ATTACKS: dict[str, Callable[[Path], Callable[[Records], None]]] = {
    "samples": lambda target: lambda records: records.update({SAMPLES: payload(target)}),
    "weight": pickled_weight,
    "constant": pickled_constant,
    "formula": formula,
    "function": called_function,
    "operator": saved_tensor,
    "name": name_as_code,
    "type": imported_type,
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_guarantee_clean_copy_runs_nothing(tmp_path: Path, attack: str) -> None:
    target = tmp_path / "ran"
    path = rewrite(export(tmp_path / "a.pt2", tiny_net()), ATTACKS[attack](target))
    with pytest.raises(InputError, match="must hold a program and plain tensors alone") as caught:
        load_model(str(path))
    assert "\n" not in str(caught.value)
    assert not target.exists()
    with pytest.raises(InputError):
        clean_copy(path)


@pytest.mark.parametrize("attack", ["samples", "weight", "formula"])
@pytest.mark.filterwarnings("ignore")
def test_the_attacks_are_real(tmp_path: Path, attack: str) -> None:
    """What torch itself does with these files."""
    target = tmp_path / "ran"
    assert is_harmful(pickle.dumps(Payload(target)), target)
    path = rewrite(export(tmp_path / "a.pt2", tiny_net()), ATTACKS[attack](target))
    with contextlib.suppress(Exception):  # it fails in some way, too late
        torch.export.load(path)
    assert target.exists()


def test_libraries_and_notes_are_left_behind(tmp_path: Path) -> None:
    def add(records: Records) -> None:
        records["data/aotinductor/model/evil.so"] = b"\x7fELF"
        records["extra/note"] = b"x"

    net = tiny_net()
    path = rewrite(export(tmp_path / "a.pt2", net), add)
    with zipfile.ZipFile(clean_copy(path)) as archive:
        assert not [name for name in archive.namelist() if "evil" in name or "extra" in name]
    same(load_model(str(path)), net, some_images(), some_images())


def test_archives_that_torch_does_not_write_are_refused(tmp_path: Path) -> None:
    path = export(tmp_path / "a.pt2", tiny_net())
    with zipfile.ZipFile(path) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in records.items():
            archive.writestr(name, content)
    with pytest.raises(InputError, match="compressed"):
        load_model(str(path))


@pytest.mark.parametrize("text", ["1" * 5000 + "x", "Add(" * 5000 + "x", "a" * 5000])
def test_long_formulas_are_answered_at_once(tmp_path: Path, text: str) -> None:
    def change(program: dict[str, Any]) -> None:
        for value in program["graph_module"]["graph"]["tensor_values"].values():
            value["sizes"] = [{"as_expr": {"expr_str": text, "hint": None}}]

    path = rewrite(export(tmp_path / "a.pt2", tiny_net()), change_json(PROGRAM, change))
    with pytest.raises(InputError, match="as expr_str"):
        load_model(str(path))


@pytest.mark.parametrize("depth", [400, 900, 100_000])
def test_nesting_without_end_is_one_line(tmp_path: Path, depth: int) -> None:
    path = export(tmp_path / "a.pt2", tiny_net())
    rewrite(path, lambda records: records.update({PROGRAM: b'{"a":' * depth + b"0" + b"}" * depth}))
    with pytest.raises(InputError, match="the exported program .*a.pt2 is") as caught:
        load_model(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"PK", b"hello", b"PK\x05\x06" + b"\0" * 18])
def test_broken_files_are_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.pt2").write_bytes(content)
    with pytest.raises(InputError, match="the exported program .*a.pt2 is") as caught:
        load_model(str(tmp_path / "a.pt2"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [PROGRAM, WEIGHTS, CONSTANTS, "data/weights/weight_0"])
def test_missing_and_damaged_records_are_one_line(tmp_path: Path, name: str) -> None:
    whole = export(tmp_path / "a.pt2", tiny_net()).read_bytes()
    for change in (
        lambda records: records.pop(name),
        lambda records: records.update({name: b""}),
        lambda records: records.update({name: b"[]"}),
        lambda records: records.update({name: b'{"config": {"a": 3}}'}),
    ):
        path = tmp_path / "b.pt2"
        path.write_bytes(whole)
        rewrite(path, change)
        with pytest.raises(InputError, match="the exported program .*b.pt2 is") as caught:
            load_model(str(path))
        assert "\n" not in str(caught.value)
