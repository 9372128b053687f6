import multiprocessing
import os
from pathlib import Path

from tabmt.search import trial_storage
from tabmt.search.trial_storage import StudyLocation


def test_completed_trials_are_listed_in_the_order_in_which_they_were_completed(tmp_path: Path):
    study = StudyLocation(str(tmp_path / "trials.journal"), "order", ("maximize",)).open()
    first, second = study.ask(), study.ask()
    study.tell(second, 2.0)
    study.tell(first, 1.0)
    assert [trial.values for trial in trial_storage.completed_in_order(study)] == [[2.0], [1.0]]


def test_trials_from_before_a_reboot_are_given_up_and_those_that_run_are_not(tmp_path: Path):
    study = StudyLocation(str(tmp_path / "trials.journal"), "reboot", ("maximize",)).open()
    machine, now = trial_storage.machine_name(), trial_storage.process_start_time(os.getpid())
    ticks = now.rpartition(" ")[2]
    for start_time in (now, f"an-earlier-boot {ticks}"):
        study.ask().set_user_attr("worker", (machine, os.getpid(), start_time))
    assert trial_storage.fail_stale_trials(study) == 1
    assert [trial.state.name for trial in study.trials] == ["RUNNING", "FAIL"]


def test_a_password_is_not_shown():
    without = trial_storage.without_password
    assert without("postgresql://me:secret@host/db") == "postgresql://me:***@host/db"
    assert without("sqlite:////tmp/a:b@c.db") == "sqlite:////tmp/a:b@c.db"
    assert without("folder/trials") == "folder/trials"


def open_together(url: str, barrier) -> None:
    barrier.wait()
    StudyLocation(url, "new", ("maximize",)).open()


def test_a_new_database_can_be_opened_by_many_at_once(tmp_path: Path):
    context = multiprocessing.get_context("spawn")
    for attempt in range(3):
        barrier = context.Barrier(4)
        url = f"sqlite:///{tmp_path}/{attempt}.db"
        processes = [context.Process(target=open_together, args=(url, barrier)) for _ in range(4)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        assert [process.exitcode for process in processes] == [0] * 4
