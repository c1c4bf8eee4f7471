"""Class indices from names, by rules that the configuration of a run cites."""

from __future__ import annotations

import csv
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

from deformrs.errors import InputError, nearest
from deformrs.limits import JSON_BYTES, parse_json, read_text

IMAGENET_CLASSES = files("deformrs.data") / "imagenet_classes.csv"
IMAGENET_COUNT = 1000

# Written into config.json: a run resumes only with the rule it was started with.
AS_PUBLISHED = "as published"
BY_MODEL = "the model's class names"
BY_WNID = "WordNet ids in ImageNet's order"
BY_IMAGENET_NAME = "ImageNet's class names"
BY_NUMBER = "whole numbers"
BY_FOLDER_ORDER = "the class folders in sorted order"
BY_WORD_ORDER = "its words in sorted order"

ClassIndices = dict[str, int]
"""The class index of each name."""

# As Python writes them, so that a mapping has each index once.
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")

# Labels may have leading zeros ("00042"). Negative ones are read to be refused as labels.
_LABEL = re.compile(r"[0-9]{1,18}|-[1-9][0-9]{0,17}")


@cache
def imagenet_wnids() -> ClassIndices:
    """Return the class index of each WordNet id of ImageNet, in the usual order.

    >>> imagenet_wnids()["n01443537"]
    1
    """
    return {row["wnid"]: index for index, row in enumerate(_imagenet_rows())}


@cache
def imagenet_names() -> tuple[str, ...]:
    """Return one short name per class of ImageNet, in the usual order; all are different.

    >>> imagenet_names()[:2]
    ('tench', 'goldfish')
    """
    return tuple(row["name"] for row in _imagenet_rows())


def _imagenet_rows() -> list[dict[str, str]]:
    with IMAGENET_CLASSES.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def label_words(
    words: Sequence[str], class_names: tuple[str, ...] | None, num_classes: int | None
) -> tuple[ClassIndices, str | None]:
    """Return the class index of every word and the rule that gave it.

    If no rule knows every word, return those of the rule that knows most, and None.
    """
    matches = _match(words, class_names, num_classes)
    rule = _complete_rule(matches, words)
    return (max(matches.values(), key=len) if rule is None else matches[rule]), rule


def label_folders(
    names: Sequence[str], class_names: tuple[str, ...] | None, num_classes: int | None
) -> tuple[ClassIndices, str]:
    """Return the class index of each class folder and the rule that gave it.

    >>> label_folders(["cat", "dog"], None, 2)
    ({'cat': 0, 'dog': 1}, 'the class folders in sorted order')
    """
    matches = _match(names, class_names, num_classes)
    if num_classes is None:
        # Other datasets share names with ImageNet: only a model of its size makes them its own.
        matches.pop(BY_IMAGENET_NAME, None)
    rule = _complete_rule(matches, names)
    if rule is not None:
        return matches[rule], rule
    # If some folders name classes, sorted order might contradict them.
    for rule in (BY_MODEL, BY_WNID):
        known = matches.get(rule, {})
        if known and num_classes is not None:
            unknown = next(name for name in names if name not in known)
            raise unknown_class("a class folder", unknown, known, class_names, num_classes)
    if num_classes in (None, len(names)):
        return {name: index for index, name in enumerate(sorted(names))}, BY_FOLDER_ORDER
    raise InputError(
        "the number of class folders",
        len(names),
        f"must be that of the model's classes, {num_classes}, unless their names say what they are",
        "name them by WordNet id, by the model's class names or by number, or add a labels.csv"
        + ("" if class_names else "; --class-names FILE names the model's classes"),
    )


def own_classes(words: Sequence[str]) -> tuple[str, ...] | None:
    """Return the words of a list as classes of its own, sorted, or None.

    An empty word, a WordNet id or an integer among them makes the others mistakes. Class names of
    ImageNet do not: other datasets share them.

    >>> own_classes(["dog", "cat"]), own_classes(["dog", "3"])
    (('cat', 'dog'), None)
    """
    matches = _match(words, None, None)
    if not all(words) or matches[BY_WNID] or matches[BY_NUMBER]:
        return None
    return tuple(sorted(words))


def align_classes(
    names: tuple[str, ...], class_names: tuple[str, ...] | None
) -> tuple[tuple[int, ...], str]:
    """Return the model's index for each class of a published dataset, and the rule.

    A model that knows every class of the dataset by name may have them in another order.

    >>> align_classes(("cat", "dog"), ("dog", "cat"))
    ((1, 0), "the model's class names")
    """
    published = tuple(range(len(names)))
    if class_names is None:
        return published, AS_PUBLISHED
    known = _match_names(names, class_names)
    if len(known) == len(names):
        return tuple(known[name] for name in names), BY_MODEL
    for index, name in enumerate(names):
        if known.get(name, index) != index:
            raise InputError(
                f"the model's index of {name!r}",
                known[name],
                f"must be {index} as published, unless the model knows every class by name",
                "correct the model's class names",
            )
    return published, AS_PUBLISHED


def check_labels(
    labels: Sequence[int],
    num_classes: int | None,
    source: Callable[[int], str],
    *,
    named: bool = False,
) -> None:
    """Raise for the first image whose label is not a class of the model.

    `named`: the model has class names, of which there could be too few.
    """
    for index, label in enumerate(labels):
        if label < 0 or (num_classes is not None and label >= num_classes):
            raise InputError(
                f"the label of {source(index)}",
                label,
                "must be 0 or above"
                if num_classes is None
                else f"must be a class of the model, 0 to {num_classes - 1}"
                + f", which has {num_classes} class names" * named,
                "correct the labels, or choose the model they belong to"
                + (", or complete the class names" if named else ""),
            )


def unknown_class(
    what: str,
    word: str,
    known: Iterable[str],
    class_names: tuple[str, ...] | None,
    num_classes: int | None,
) -> InputError:
    """Return the error for a word that is no class of the model, with the closest that is one.

    `known` are the words beside it that were recognised. ImageNet's classes are those of a model
    that has them or has a thousand without names, and of words some of which are ImageNet's.
    """
    known = tuple(known)
    imagenet = in_imagenet_order(class_names) and (
        num_classes == IMAGENET_COUNT
        or any(name in imagenet_wnids() for name in known)
        or bool(_match_names(known, imagenet_names()))
    )
    names = (class_names or ()) + ((*imagenet_names(), *imagenet_wnids()) if imagenet else ())
    spelling = {normalized(name): name for name in reversed(names)}
    close = nearest(normalized(word), spelling)
    kinds = [
        *([f"one of the model's {len(class_names):,} class names"] if class_names else []),
        *(["a WordNet id or a class name of ImageNet"] if imagenet else []),
        "an integer",
    ]
    same = f", of the same kind as {known[0]!r}" if known else ""
    remedy = "correct it" if names else "or name the model's classes by --class-names FILE"
    if close is not None:
        remedy = f"did you mean {spelling[close]!r}?"
    return InputError(what, repr(word), f"must be {', or '.join(kinds)}{same}", remedy)


def read_class_names(path: Path) -> tuple[str, ...]:
    """Return the class names in a file, in the order of the model's outputs.

    It is a text of one name per line, or JSON: a list of names, {"0": "cat", "1": "dog"},
    {"0": ["n02123045", "tabby"]}, {"cat": 0, "dog": 1}, or a configuration with `id2label`.
    """
    name = f"the file of class names {path}"
    rule = "must be UTF-8 text with one name per line, or a JSON list or mapping of names"
    try:
        text = read_text(path, JSON_BYTES, encoding="utf-8-sig")
        if path.suffix.lower() == ".json" or text.lstrip().startswith(("[", "{")):
            return check_class_names(_names_in_json(parse_json(text)), name)
    except InputError:
        raise
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(name, f"not readable ({reason})", rule, "check the file") from None
    # Not by splitlines, which takes other characters for line breaks too.
    lines = text.rstrip().split("\n") if text.strip() else []
    return check_class_names([line.strip() for line in lines], name)


def check_class_names(names: Sequence[str], what: str = "class_names") -> tuple[str, ...]:
    """Return the names as a tuple; raise unless each is text that is not empty."""
    if isinstance(names, str | Mapping) or not names:
        raise InputError(what, repr(names), "must be a list of names", "e.g. ['cat', 'dog']")
    for index, name in enumerate(names):
        if not isinstance(name, str) or not name.strip():
            raise InputError(
                what, f"{name!r} for class {index}", "must have a name for each class", "add it"
            )
    return tuple(names)


def _names_in_json(content: object) -> list[str]:
    """Return the names in a list or a mapping, by class index; ValueError if there are none."""
    if isinstance(content, dict) and isinstance(content.get("id2label"), dict):
        content = content["id2label"]
    if isinstance(content, list):
        return content
    if not isinstance(content, dict):
        raise ValueError("it is neither a list nor a mapping")
    if all(type(value) is int for value in content.values()):
        pairs = [(index, name) for name, index in content.items()]
    else:
        for index in content:
            if not _INTEGER.fullmatch(index):
                raise ValueError(f"{index!r} is not a class index")
        pairs = [(int(index), name) for index, name in content.items()]
    by_index = {
        index: name[-1] if isinstance(name, list) and name else name for index, name in pairs
    }
    if sorted(by_index) != list(range(len(pairs))):
        raise ValueError(f"its class indices are not 0 to {len(pairs) - 1}")
    return [by_index[index] for index in range(len(pairs))]


def normalized(name: str) -> str:
    """Return a class name without differences in case, spaces, hyphens and underscores.

    A minus sign stays, and so does a name without letters.

    >>> normalized("Great_white-Shark"), normalized("-1")
    ('great white shark', '-1')
    """
    plain = unicodedata.normalize("NFC", name).casefold()
    if not any(map(str.isalpha, plain)):
        return plain
    return re.sub(r"(?:[\s_]|(?<=[^\W_])-|-(?!\d))+", " ", plain).strip()


def in_imagenet_order(class_names: tuple[str, ...] | None) -> bool:
    """Return whether these are ImageNet's classes in the usual order, however they are spelled."""
    if class_names is None:
        return True
    usual = imagenet_names()
    if len(class_names) != len(usual):
        return False
    pairs = zip(class_names, usual, strict=True)
    same = sum(normalized(_first_name(own)) == normalized(name) for own, name in pairs)
    return same >= 0.9 * len(usual)  # libraries rename a few


def _match(
    words: Sequence[str], class_names: tuple[str, ...] | None, num_classes: int | None
) -> dict[str, ClassIndices]:
    """Return the words that each rule recognises, in the order of the rules' precedence.

    ImageNet's rules apply only to models of a thousand classes.
    """
    matches = {}
    imagenet = num_classes in (None, IMAGENET_COUNT)
    if class_names is not None:
        matches[BY_MODEL] = _match_names(words, class_names)
    if imagenet:
        matches[BY_WNID] = _match_wnids(words, class_names)
    matches[BY_NUMBER] = {word: int(word) for word in words if _LABEL.fullmatch(word)}
    if imagenet and in_imagenet_order(class_names):
        matches[BY_IMAGENET_NAME] = _match_names(words, imagenet_names())
    return matches


def _complete_rule(matches: dict[str, ClassIndices], words: Sequence[str]) -> str | None:
    """Return the first rule that recognises every word; raise if it takes two for one integer."""
    rule = next((rule for rule, known in matches.items() if len(known) == len(words)), None)
    if rule == BY_NUMBER:
        first: dict[int, str] = {}
        for word, number in matches[rule].items():
            if first.setdefault(number, word) != word:
                raise InputError(
                    f"the class {number}",
                    f"named both {first[number]!r} and {word!r}",
                    "must be written in one way, since they could be two classes",
                    "rename one of them",
                )
    return rule


def _match_names(words: Iterable[str], class_names: Sequence[str]) -> ClassIndices:
    """Return the class index of each word that is a class name, spelled exactly or nearly so."""
    exact: dict[str, list[int]] = {}
    similar: dict[str, list[int]] = {}
    for index, name in enumerate(class_names):
        exact.setdefault(name, []).append(index)
        similar.setdefault(normalized(name), []).append(index)
    known = {}
    for word in words:
        indices = exact.get(word) or similar.get(normalized(word)) or []
        if len(indices) > 1:
            raise InputError(
                "the class name",
                repr(word),
                f"is ambiguous: it stands for classes {indices[0]} and {indices[1]} of the model",
                "give the labels as integers",
            )
        if indices:
            known[word] = indices[0]
    return known


def _match_wnids(words: Sequence[str], class_names: tuple[str, ...] | None) -> ClassIndices:
    """Return the class index of each word that is a WordNet id.

    A model that has ImageNet's classes in another order is matched by their names.
    """
    known = {word: imagenet_wnids()[word] for word in words if word in imagenet_wnids()}
    if class_names is None or in_imagenet_order(class_names):
        return known
    names = {word: imagenet_names()[index] for word, index in known.items()}
    own = _match_names(names.values(), [_first_name(name) for name in class_names])
    return {word: own[name] for word, name in names.items() if name in own}


def _first_name(name: str) -> str:
    """Return the first of several names, as in `tench, Tinca tinca`."""
    return re.split("[,:]", name, maxsplit=1)[0]
