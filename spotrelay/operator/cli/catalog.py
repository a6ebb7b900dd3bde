"""`spotrelay catalog`: what each accelerator and each instance type with one has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import date
from typing import Annotated, Any

import typer

from spotrelay.file import catalog as data
from spotrelay.file.catalog import (
    Chip,
    InstanceType,
    accelerator_names,
    all_chips,
    all_types,
    find_accelerator,
    memory_bytes,
    origin,
)
from spotrelay.operator.cli.errors import CommandError, bad_input_shown
from spotrelay.operator.cli.nearest import unknown
from spotrelay.operator.cli.options import AsJson
from spotrelay.operator.cli.telling import echo_json
from spotrelay.plane.view.words import UNKNOWN


def catalog(
    gpu: Annotated[
        str | None,
        typer.Option(
            "--gpu",
            help="Only this accelerator, with all that is known of it.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    is_json: AsJson = False,
) -> None:
    """Show what each accelerator has, and the instance types that have it.

    What AWS's API tells is from a dated copy, which needs no credentials; the rest has its source, and is ?
    where none could be found. Rates are dense, in TFLOP/s.

    Example: spotrelay catalog --gpu L4
    """
    chips = all_chips()
    if gpu is not None:
        with bad_input_shown("catalog"):
            name = _known(gpu)
        chips = {name: chips[name]}
    if is_json:
        echo_json(_document(chips.values()))
    elif gpu is not None:
        for chip in chips.values():
            _show(chip)
    else:
        _show_all(chips.values())


def _known(gpu: str) -> str:
    name = find_accelerator(gpu)
    if name is None:
        raise CommandError(f"--gpu: {unknown('accelerator', gpu, accelerator_names())}")
    return name


def _types(name: str) -> list[InstanceType]:
    found = [type_ for type_ in all_types() if type_.accelerator == name]
    return sorted(found, key=lambda t: (t.accelerator_count or 1, t.accelerator_count, t.vcpus, t.name))


def _document(chips: Any) -> dict[str, Any]:
    """Everything that is known, each value with its source."""
    origin = data.origin()
    return {
        "instance_types_from": asdict(origin),
        "accelerators": [
            {
                **_plain({k: v for k, v in asdict(chip).items() if k != "tflops"}),
                "tflops_dense": _plain(asdict(chip)["tflops"]),
                "instance_types": [
                    {
                        **asdict(type_),
                        "memory_bytes_of_one": data.memory_bytes(type_),
                        **asdict(data.host_of(type_.name)),
                        "zones": data.offered(type_.name),
                    }
                    for type_ in _types(chip.name)
                ],
            }
            for chip in chips
        ],
    }


def _plain(value: Any) -> Any:
    """Dates as text; None as it is."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return value.isoformat() if isinstance(value, date) else value


def _number(value: float | None, zero: str = "0") -> str:
    if value is None:
        return UNKNOWN
    return f"{value:,.10g}" if value else zero


def _memory(name: str) -> str:
    whole = [type_ for type_ in _types(name) if type_.accelerator_count]
    return f"{memory_bytes(whole[0]) / 1024**3:.1f}"


def _show_all(chips: Any) -> None:
    from spotrelay.operator.cli.tables import console, draw, table

    head = ("GPU", "ARCHITECTURE", "GiB", "GB/s", "BF16", "FP16", "FP8", "NVLINK GB/s", "ON")
    shown = table(head, left=("GPU", "ARCHITECTURE", "ON"), wraps=("ON",))
    for chip in chips:
        shown.add_row(
            chip.name,
            chip.architecture.value,
            _memory(chip.name),
            _number(chip.bandwidth),
            *(_rate(chip, precision) for precision in ("bf16", "fp16", "fp8")),
            _number(chip.nvlink, "none"),
            ", ".join(dict.fromkeys(type_.family for type_ in _types(chip.name))),
        )
    draw(console(), shown)
    typer.echo(
        f"\nDense TFLOP/s; - where the hardware lacks the precision, {UNKNOWN} where no source was found."
        f" Instance types as of {origin().date}. --gpu NAME shows one with its sources."
    )


def _rate(chip: Chip, precision: str) -> str:
    known = chip.rate(precision)
    lacks = known is None and chip.precisions is not None and not chip.computes_in(precision)
    return "-" if lacks else _number(known)


def _show(chip: Chip) -> None:
    from spotrelay.operator.cli.tables import console, draw, table

    out = console()
    typer.echo(chip.name)
    rows = list(_facts(chip))
    sources = {source: number for number, source in enumerate(dict.fromkeys(row[2] for row in rows), 1)}
    facts = table(("", "", ""), left=("",), wraps=("",))
    for label, value, of in rows:
        facts.add_row(label, value, f"[{sources[of]}]")
    draw(out, facts)
    typer.echo()
    head = (
        "TYPE",
        "GPUS",
        "GiB EACH",
        "vCPU",
        "HOST GiB",
        "NVMe GB",
        "NETWORK Gbit/s",
        "EFA",
        "EBS MB/s",
        "REGIONS",
    )
    types = table(head, left=("TYPE",))
    for type_ in _types(chip.name):
        host = data.host_of(type_.name)
        types.add_row(
            type_.name,
            f"{type_.accelerator_count}" if type_.accelerator_count else f"{host.share:g}",
            f"{data.memory_bytes(type_) / 1024**3:.1f}",
            f"{type_.vcpus}",
            f"{type_.memory_gib:g}",
            _number(host.local_disk_gb, "-"),
            _range(host.network_gbps, host.network_burst_gbps),
            f"{host.efa_interfaces or '-'}",
            _range(host.ebs_mb_s, host.ebs_burst_mb_s),
            f"{len(data.offered(type_.name))}",
        )
    draw(out, types)
    typer.echo("\nNetwork and EBS: what is sustained, and what a burst reaches.")
    typer.echo(f"Instance types: {data.origin().source}, {data.origin().date}.")
    for (url, day, says), number in sources.items():
        typer.echo(f"[{number}] {url}, checked {day}: {says}")


def _range(low: float, high: float) -> str:
    return f"{low:g}" if low == high else f"{low:g}-{high:g}"


def _facts(chip: Chip) -> Iterator[tuple[str, str, tuple[str, date, str]]]:
    """Label, value, and what is told of the source."""
    told = {
        "architecture": chip.architecture,
        "compute capability": chip.compute_capability,
        "precisions in hardware": chip.precisions,
        "memory bandwidth, GB/s": chip.bandwidth_gb_s,
        "NVLink, GB/s": chip.nvlink_gb_s,
        "NVSwitch": chip.nvswitch,
        "memory, GiB": chip.memory_gib,
        **{
            f"{name.upper()}, T{'OP' if name.startswith('int') else 'FLOP'}/s dense": rate
            for name, rate in chip.tflops.items()
        },
    }
    for label, fact in told.items():
        if fact is not None:
            value = fact.value
            words = ", ".join(value) if isinstance(value, tuple) else value
            words = {True: "yes", False: "no"}[words] if isinstance(words, bool) else words
            shown = words if isinstance(words, str) else _number(words, "none")
            yield label, shown, (fact.source.url, fact.source.date, fact.source.says)
