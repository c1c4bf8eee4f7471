"""From the names of classes to their numbers, by rules that a run's configuration can cite."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence

from deformrs.data import imagenet
from deformrs.errors import InputError

Numbers = dict[str, int]
"""What each name of a class stands for."""

AS_PUBLISHED = "as published"
BY_MODEL = "the model's class names"
BY_WNID = "WordNet ids in ImageNet's order"
BY_IMAGENET_NAME = "ImageNet's class names"
BY_NUMBER = "integers"
BY_ORDER = "the class folders in sorted order"
BY_WORDS = "its words in sorted order"

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")


def folded(name: str) -> str:
    """Names that differ only in case, spaces, hyphens or underscores are the same.

    >>> folded("Great_white-Shark")
    'great white shark'
    """
    plain = unicodedata.normalize("NFC", name).casefold()
    return re.sub(r"[\s_-]+", " ", plain).strip()


def by_names(words: Iterable[str], class_names: Sequence[str]) -> Numbers:
    """The number of each word that is one of the class names; words that are none are left out."""
    exact: dict[str, list[int]] = {}
    alike: dict[str, list[int]] = {}
    for number, name in enumerate(class_names):
        exact.setdefault(name, []).append(number)
        alike.setdefault(folded(name), []).append(number)
    numbers = {}
    for word in words:
        found = exact.get(word) or alike.get(folded(word))
        if found is not None and len(found) > 1:
            raise InputError(
                "the class name",
                repr(word),
                f"stands for classes {found[0]} and {found[1]} of the model alike",
                "give the labels as integers",
            )
        if found is not None:
            numbers[word] = found[0]
    return numbers


def readings(
    words: Sequence[str], class_names: tuple[str, ...] | None, num_classes: int | None
) -> dict[str, Numbers]:
    """What each rule makes of the words, the rule that counts most first.

    ImageNet's order speaks only to models of a thousand classes.
    """
    found = {}
    if class_names is not None:
        found[BY_MODEL] = by_names(words, class_names)
    if num_classes in (None, imagenet.COUNT):
        found[BY_WNID] = by_wnids(words, class_names)
    found[BY_NUMBER] = {word: int(word) for word in words if _WHOLE.fullmatch(word)}
    if num_classes in (None, imagenet.COUNT) and in_imagenets_order(class_names):
        found[BY_IMAGENET_NAME] = by_names(words, imagenet.class_names())
    return found


def by_wnids(words: Sequence[str], class_names: tuple[str, ...] | None) -> Numbers:
    """The number of each word that is a WordNet id: ImageNet's, or the model's own class of that
    name where the model has the classes in another order."""
    numbers = {word: imagenet.wnids()[word] for word in words if word in imagenet.wnids()}
    if class_names is None or in_imagenets_order(class_names):
        return numbers
    names = {word: imagenet.class_names()[number] for word, number in numbers.items()}
    known = by_names(names.values(), [_first_name(name) for name in class_names])
    return {word: known[name] for word, name in names.items() if name in known}


def in_imagenets_order(class_names: tuple[str, ...] | None) -> bool:
    """Are these ImageNet's classes in their usual order? Libraries spell a few in their own way."""
    if class_names is None:
        return True
    usual = imagenet.class_names()
    same = sum(
        folded(_first_name(ours)) == folded(name)
        for ours, name in zip(class_names, usual, strict=False)
    )
    return len(class_names) == len(usual) and same >= 0.9 * len(usual)


def _first_name(name: str) -> str:
    """`tench, Tinca tinca` is called tench."""
    return re.split("[,:]", name, maxsplit=1)[0]


def number_words(
    words: Sequence[str], class_names: tuple[str, ...] | None, num_classes: int | None
) -> tuple[Numbers, str | None]:
    """The number of every word and the rule that gave them; without such a rule, as far as one
    reaches, and None."""
    found = readings(words, class_names, num_classes)
    for rule, numbers in found.items():
        if len(numbers) == len(words):
            return numbers, rule
    return max(found.values(), key=len), None


def own_words(words: Sequence[str]) -> tuple[str, ...] | None:
    """Words that are a list's own classes, sorted; None where one is empty or means something.

    A WordNet id or a number among them makes the others mistakes. Words of ImageNet do not: they
    may well be the words of other sets.

    >>> own_words(["dog", "cat"]), own_words(["dog", "3"])
    (('cat', 'dog'), None)
    """
    found = readings(words, None, None)
    if not all(words) or found[BY_WNID] or found[BY_NUMBER]:
        return None
    return tuple(sorted(words))


def number_folders(
    names: Sequence[str], class_names: tuple[str, ...] | None, num_classes: int | None
) -> tuple[Numbers, str]:
    """The label of each class folder, and the rule that gave it.

    >>> number_folders(["cat", "dog"], None, 2)
    ({'cat': 0, 'dog': 1}, 'the class folders in sorted order')
    """
    found = readings(names, class_names, num_classes)
    if num_classes is None:
        # Words of ImageNet may well be the words of other sets: they need a model that fits.
        found.pop(BY_IMAGENET_NAME, None)
    for rule, numbers in found.items():
        if len(numbers) == len(names):
            return numbers, rule
    # Sorted order is no answer where some folders say what they are: it might not agree.
    for rule in (BY_MODEL, BY_WNID):
        numbers = found.get(rule, {})
        if numbers and num_classes is not None:
            word = next(name for name in names if name not in numbers)
            raise unknown_class("a class folder", word, numbers, class_names)
    if num_classes in (None, len(names)):
        return {name: number for number, name in enumerate(sorted(names))}, BY_ORDER
    raise InputError(
        "the number of class folders",
        len(names),
        f"must be that of the model's classes, {num_classes}, unless their names say what they are",
        "call them by WordNet id, by the model's class names or by number, or add a labels.csv",
    )


def unknown_class(
    what: str, word: str, others: Iterable[str], class_names: tuple[str, ...] | None
) -> InputError:
    """The error for a word that is no class where `others` are, with the nearest that is."""
    known = (*(class_names or ()), *imagenet.class_names(), *imagenet.wnids())
    spelling = {folded(name): name for name in reversed(known)}
    near = difflib.get_close_matches(folded(word), spelling, n=1)
    example = next(iter(others), None)
    return InputError(
        what,
        repr(word),
        "must be a class name of the model, a WordNet id or a class name of ImageNet, or a whole"
        " number" + ("" if example is None else f", of the same kind as {example!r}"),
        f"did you mean {spelling[near[0]]!r}?" if near else "correct it",
    )


def align(
    names: tuple[str, ...], class_names: tuple[str, ...] | None
) -> tuple[tuple[int, ...], str]:
    """The model's number for each class of a published set, and the rule that gave it.

    A model that knows all of the set's classes by name may have them in an order of its own.

    >>> align(("cat", "dog"), ("dog", "cat"))
    ((1, 0), "the model's class names")
    """
    usual = tuple(range(len(names)))
    if class_names is None:
        return usual, AS_PUBLISHED
    numbers = by_names(names, class_names)
    if len(numbers) == len(names):
        return tuple(numbers[name] for name in names), BY_MODEL
    for number, name in enumerate(names):
        if numbers.get(name, number) != number:
            raise InputError(
                f"the model's number for {name!r}",
                numbers[name],
                f"must be {number} as in the set, where it does not know every class by name",
                "correct the model's class names",
            )
    return usual, AS_PUBLISHED


def check_labels(
    labels: Sequence[int], num_classes: int | None, source: Callable[[int], str]
) -> None:
    """Raise for the first image whose label is no class of the model."""
    for index, label in enumerate(labels):
        if label < 0 or (num_classes is not None and label >= num_classes):
            last = "" if num_classes is None else f" to {num_classes - 1}"
            raise InputError(
                f"the label of {source(index)}",
                label,
                f"must be a class of the model, 0{last}" if last else "must be 0 or above",
                "correct the labels, or choose the model that belongs to them",
            )
