"""What processes tell each other, with the store of JAX's coordination service played by a dictionary."""

import threading

import pytest

from posteriax.distributed import ProcessError, check_same, exchange, processes, together


class Store:
    """Keys that one process sets and others wait for; `slow` ones time out that often before they are found."""

    def __init__(self, slow=0):
        self.values, self.changed, self.slow = {}, threading.Condition(), slow

    def key_value_set(self, key, value):
        with self.changed:
            self.values[key] = value
            self.changed.notify_all()

    def key_value_delete(self, key):
        pass

    def blocking_key_value_get(self, key, timeout_in_ms):
        if self.slow:
            self.slow -= 1
            raise RuntimeError("DEADLINE_EXCEEDED: GetKeyValue() timed out")
        with self.changed:
            assert self.changed.wait_for(lambda: key in self.values, 60)
            return self.values[key]


def as_processes(count, work, monkeypatch, store=None):
    """Run `work(number)` in threads that take themselves for processes; what each returned or raised."""
    own, store = threading.local(), store or Store()
    monkeypatch.setattr(processes.jax, "process_index", lambda: own.number)
    monkeypatch.setattr(processes.jax, "process_count", lambda: count)
    monkeypatch.setattr(processes, "is_first", lambda: own.number == 0)
    monkeypatch.setattr(processes, "several", lambda: True)
    monkeypatch.setattr(processes, "_client", lambda: store)
    ended = [None] * count

    def be(number):
        own.number = number
        try:
            ended[number] = work(number)
        except Exception as error:
            ended[number] = error

    rounds = {}
    monkeypatch.setattr(processes, "_round", _PerThread(own, rounds))
    threads = [threading.Thread(target=be, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    return ended


class _PerThread:
    """A counter for each process."""

    def __init__(self, own, rounds):
        self.own, self.rounds = own, rounds

    def __next__(self):
        self.rounds[self.own.number] = self.rounds.get(self.own.number, -1) + 1
        return self.rounds[self.own.number]


def test_all_get_the_messages_of_all_in_order(monkeypatch):
    assert as_processes(3, lambda number: exchange(number * 10), monkeypatch) == [[0, 10, 20]] * 3


def test_processes_that_disagree_get_the_same_error(monkeypatch):
    ended = as_processes(3, lambda number: check_same({"key": str(number // 2), "data": "x"}, ""), monkeypatch)
    assert {str(error) for error in ended} == {
        "the processes disagree: key is 0 in process 0, 1 in process 2. All must make the same call with the same data."
    }
    assert all(isinstance(error, ProcessError) for error in ended)


def test_the_error_of_one_process_is_raised_in_all(monkeypatch):
    def work(number):
        with together("checking"):
            if number == 1:
                raise ValueError("x has NaN")

    first, second, third = as_processes(3, work, monkeypatch)
    assert isinstance(second, ValueError)
    for error in (first, third):
        assert isinstance(error, ProcessError)
        assert str(error) == "process 1 failed when checking: ValueError: x has NaN"


def test_a_slow_process_is_reported_and_waited_for(monkeypatch, capfd):
    monkeypatch.setattr(processes, "SLOW_SECONDS", 0.0)
    ended = as_processes(2, lambda number: exchange(number, "saving"), monkeypatch, Store(slow=2))
    assert ended == [[0, 1]] * 2
    assert "s for process 1 when saving; it is alive, but slow or stopped" in capfd.readouterr().err


def test_without_other_processes_nothing_is_exchanged():
    assert exchange("alone") == ["alone"]
    check_same({"key": "0"}, "")
    with pytest.raises(ZeroDivisionError), together("dividing"):
        1 / 0  # noqa: B018
