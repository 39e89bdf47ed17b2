"""Memory that is taken again: never while somebody can still read it."""

import itertools
import threading

import numpy as np
import pytest
import torch

from superworkflow.tasks.lib.kernels.buffer_pool import Arena, Memory

MIB = 1 << 20


def apart(*arrays: np.ndarray) -> bool:
    """True if no two share a byte."""
    spans = sorted((each.ctypes.data, each.ctypes.data + each.nbytes) for each in arrays)
    return all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))


def test_a_piece_is_taken_again_only_when_it_was_given_back():
    memory = Memory()
    one, other = memory.take(MIB), memory.take(MIB)
    assert apart(one, other)
    memory.give_back([one])
    again = memory.take(MIB - 5)
    assert again.ctypes.data == one.ctypes.data
    assert apart(memory.take(MIB), again, other)


@pytest.mark.parametrize("size", [1, MIB, MIB + 1, 3 * MIB])
def test_pieces_are_large_enough_and_aligned(size):
    piece = Memory().take(size)
    assert len(piece) >= size
    assert piece.ctypes.data % 64 == 0
    piece[-1] = piece[0] = 1


def test_no_more_pieces_are_kept_than_wanted():
    memory = Memory(most=2)
    pieces = [memory.take(MIB) for _ in range(4)]
    memory.give_back(pieces)
    kept = {piece.ctypes.data for piece in pieces[:2]}
    assert {memory.take(MIB).ctypes.data, memory.take(MIB).ctypes.data} == kept
    assert memory.take(2 * MIB).nbytes == 2 * MIB, "of another size none was kept"


def readers(array: np.ndarray) -> dict[str, object]:
    tensor = torch.from_numpy(array)
    return {
        "array": array, "slice": array[1:], "row": array[0], "slice of a slice": array[1:][:, 1:],
        "transposed": array.T, "other type": array.view(np.uint8), "flat": array.reshape(-1), "tensor": tensor,
        "slice of a tensor": tensor[1:], "array of a tensor": tensor.numpy()[1:], "buffer": memoryview(array),
    }  # fmt: skip


@pytest.mark.parametrize("kind", readers(np.zeros((2, 2))))
def test_memory_of_an_array_is_given_back_with_the_last_that_reads_it(kind):
    memory, shape = Memory(), (2, MIB // 8)
    array = memory.array(shape, np.int32)
    assert (array.shape, array.dtype, array.flags.c_contiguous) == (shape, np.int32, True)
    array[:] = 7
    address = array.ctypes.data
    reader = readers(array)[kind]
    del array
    other = memory.array(shape, np.int32)
    other[:] = 8
    assert set(np.asarray(reader).tobytes()) == {0, 7}
    assert other.ctypes.data != address
    del reader
    assert memory.array(shape, np.int32).ctypes.data == address


def test_small_arrays_take_none():
    memory = Memory()
    kept = memory.take(MIB)
    memory.give_back([kept])
    assert apart(memory.array((3,), np.int64), memory.array((0, 5), np.float32), kept)
    assert memory.take(MIB).ctypes.data == kept.ctypes.data


def test_an_arenas_arrays_are_aligned_and_share_nothing():
    memory = Memory()
    arena, arrays = Arena(memory), []
    rng = np.random.default_rng(1)
    sizes = [0, 1, 63, 64, 65, *rng.integers(1, MIB, 12).tolist(), 17 * MIB, 0, 3]  # the last but two: above a piece's
    for number, size in enumerate(sizes):
        dtype = np.dtype((np.int32, np.int64, np.uint8)[number % 3])
        arrays.append(arena.array(size, dtype))
        assert (arrays[-1].shape, arrays[-1].dtype) == ((size,), dtype)
        assert arrays[-1].ctypes.data % 64 == 0
        arrays[-1][:] = number
    assert len(arena.pieces) > 2
    assert apart(*(each for each in arrays if len(each)))
    assert all((each == number).all() for number, each in enumerate(arrays))
    memory.give_back(arena.pieces)
    again = Arena(memory)
    for each in arrays:
        again.array(len(each), each.dtype)
    assert {piece.ctypes.data for piece in again.pieces} == {piece.ctypes.data for piece in arena.pieces}


def test_threads_get_memory_of_their_own():
    """Memory keeps what its thread wrote until it is given back, whatever other threads take."""
    memory, faults, together = Memory(), [], threading.Barrier(4)

    def work(number: int) -> None:
        together.wait()
        for _ in range(150):
            arena = Arena(memory)
            mine = [arena.array(50, np.dtype(np.int64)) for _ in range(3)]
            array = memory.array((MIB // 4,), np.int32)
            for each in (*mine, array[:50]):
                each[:] = number
            if not all((each == number).all() for each in (*mine, array[:50])):
                faults.append(number)
            del array
            memory.give_back(arena.pieces)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
