"""The shared library of C kernels: loading it, its instruction sets, and its structures."""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, Structure, c_char_p, c_double, c_int32, c_int64, c_void_p
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

MODES = ("RNN_TANH", "RNN_RELU", "RNN_SIGMOID", "RNN_LINEAR", "LSTM", "GRU")  # in the order of recurrence.h
DTYPES = (torch.float32, torch.float64)
VARIABLE = "PARALLELRNN_INSTRUCTIONS"  # names the instruction set to use instead of the best one
FILE = "recurrence.so"


class Chunk(Structure):
    """`chunk` of recurrence.h."""

    _fields_ = (
        *((name, c_int64) for name in ("steps", "batch", "num_blocks", "block_size")),
        *((name, c_int64) for name in ("inputs", "x_step", "x_row")),
        *((name, c_int32) for name in ("mode", "reverse", "threads")),
        *((name, c_void_p) for name in ("real_steps", "x", "weight_ih", "bias_ih", "bias_hh", "weight_hh")),
        *((name, c_void_p) for name in ("gates", "output", "cells")),
    )


class ForwardCall(Structure):
    """`forward_call` of recurrence.h."""

    _fields_ = (("chunk", Chunk), *((name, c_void_p) for name in ("projected", "h", "c")))


class BackwardCall(Structure):
    """`backward_call` of recurrence.h."""

    _fields_ = (
        ("chunk", Chunk),
        *((name, c_void_p) for name in ("h_before", "c_before", "grad_output")),
        *((name, c_int64) for name in ("grad_output_step", "grad_output_row")),
        *((name, c_void_p) for name in ("grad_h", "grad_c", "grad_gates", "grad_new")),
        *((name, c_void_p) for name in ("grad_weight_ih", "grad_bias_ih", "grad_bias_hh", "grad_weight_hh")),
    )


class AttentionCall(Structure):
    """`attention_call` of recurrence.h."""

    _fields_ = (
        *((name, c_int64) for name in ("batch", "queries", "keys", "heads", "width", "threads")),
        ("factor", c_double),
        *((name, c_void_p) for name in ("ignored", "q", "k", "v", "output", "top", "inverse")),
        *((name, c_void_p) for name in ("grad_output", "grad_q", "grad_k", "grad_v")),
    )


_Forward = ctypes.CFUNCTYPE(c_int32, POINTER(ForwardCall))
_Backward = ctypes.CFUNCTYPE(c_int32, POINTER(BackwardCall))
_Attention = ctypes.CFUNCTYPE(c_int32, POINTER(AttentionCall))
_Work = ctypes.CFUNCTYPE(None, c_int64, c_int32, c_void_p)


class _Table(Structure):
    """`instruction_set` of recurrence.h."""

    _fields_ = (
        ("name", c_char_p),
        ("lanes", c_int64 * 2),
        ("forward", _Forward * 2),
        ("backward", _Backward * 2),
        ("attention", _Attention * 2),
        ("peak_work", _Work * 3),
    )


@dataclass(frozen=True, kw_only=True)
class InstructionSet:
    """The kernels for one set of vector instructions."""

    name: str
    lanes: dict[torch.dtype, int]  # blocks of at most this many units are small: the kernels sum their weight gradients
    forward: dict[torch.dtype, Any]
    backward: dict[torch.dtype, Any]
    attention: dict[torch.dtype, Any]
    peak_work: tuple[Any, ...]  # work of known size: multiply-adds, activations, a triad; see machine_peak.py


@dataclass(frozen=True, kw_only=True)
class Library:
    """The library as it was loaded on import: its instruction sets, best first, or why there are none."""

    path: Path
    instruction_sets: tuple[InstructionSet, ...] = ()
    has_threads: bool = False
    problem: str = ""
    advice: str = (  # how to solve the problem
        "install a C compiler (on Debian: apt install gcc; on macOS: xcode-select --install) and parallelrnn again"
    )


def load(path: Path) -> Library:
    """Load the shared library; if that fails, return a `Library` whose `problem` says why."""
    if not path.exists():
        return Library(path=path, problem=f"the C kernels were not built: {path} does not exist")
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        return Library(path=path, problem=f"the C kernels could not be loaded: {error}")
    try:
        sizes = (
            library.parallelrnn_forward_size(),
            library.parallelrnn_backward_size(),
            library.parallelrnn_attention_size(),
        )
    except AttributeError:
        sizes = (0, 0, 0)
    if sizes != tuple(map(ctypes.sizeof, (ForwardCall, BackwardCall, AttentionCall))):
        return Library(path=path, problem="the C kernels belong to another version of the package")
    library.parallelrnn_instruction_set.restype = POINTER(_Table)
    tables: list[InstructionSet] = []
    while table := library.parallelrnn_instruction_set(len(tables)):
        tables.append(_instruction_set(table.contents))
    return Library(path=path, instruction_sets=tuple(tables), has_threads=bool(library.parallelrnn_has_threads()))


def _instruction_set(table: _Table) -> InstructionSet:
    return InstructionSet(
        name=table.name.decode(),
        lanes=dict(zip(DTYPES, table.lanes, strict=True)),
        forward=dict(zip(DTYPES, table.forward, strict=True)),
        backward=dict(zip(DTYPES, table.backward, strict=True)),
        attention=dict(zip(DTYPES, table.attention, strict=True)),
        peak_work=tuple(table.peak_work),
    )


def only(library: Library, name: str | None) -> Library:
    """Return the library with this instruction set only, or unchanged if no name is given."""
    if not name or not library.instruction_sets:
        return library
    named = tuple(instructions for instructions in library.instruction_sets if instructions.name == name)
    if named:
        return replace(library, instruction_sets=named)
    known = ", ".join(instructions.name for instructions in library.instruction_sets)
    problem = f"{VARIABLE}={name} names instructions that are unknown or that this processor does not have"
    return replace(library, instruction_sets=(), problem=problem, advice=f"set it to one of {known}, or unset it")


# Everything that was built, the part of it to use, and the best instruction set of that part.
BUILT = load(Path(__file__).parent / "csrc" / FILE)
LIBRARY = only(BUILT, os.environ.get(VARIABLE))
INSTRUCTIONS = LIBRARY.instruction_sets[0] if LIBRARY.instruction_sets else None
