"""Every format is guessed from its header and read, plain or gzipped."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from gpuyard.model.errors import NotFound, Refused
from gpuyard.model.resources import MILLI, WHOLE
from gpuyard.worlds.sim import fleets
from gpuyard.worlds.sim.traces import reading
from gpuyard.worlds.sim.traces.trace import Window

OPENB = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec
a,4000,1024,1,460,
b,8000,2048,2,1000,V100M16|V100M32
c,1000,512,0,0,
"""
NODES = """sn,cpu_milli,memory_mib,gpu,model
n0,64000,262144,2,P100
n1,96000,262144,8,V100M16
"""
MURI = """job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time
0,1,0,1000,dqn,128,1,1,500
1,16,60000,1000,bert,8,1,1,1000
"""
PHILLY = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-01 00:00:00,66.0,1,66.0,11cb48
2017-10-09 00:00:00,60.0,12,720,6214e9
"""
PHILLY_ALL = """#job id,arrival time (sec),topology,shape,size,duration (sec)
0,0.0,CLOS,1,1,3613.0
"""
OWN = """job,submitted,gpus,tasks,duration,queue,cpu
x,10,8,2,3600,research,16
y,5,0.5,1,60,default,1
"""
JOURNAL = """{"t":0.0,"event":"arrive","job":"a"}
{"t":1.0,"event":"place","job":"a","task":0,"node":"n","gpus":[0,1],"milli":[1000,1000]}
{"t":5.0,"event":"evict","job":"a","task":0,"node":"n","gpus":[0,1],"milli":[1000,1000]}
{"t":7.0,"event":"place","job":"a","task":0,"node":"n","gpus":[0,1],"milli":[1000,1000]}
{"t":9.0,"event":"finish","job":"a","task":0,"node":"n","gpus":[0,1],"milli":[1000,1000]}
"""


def written(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize(
    ("text", "form"),
    [(OPENB, "openb"), (MURI, "muri"), (PHILLY, "philly"), (PHILLY_ALL, "philly"), (OWN, "csv"), (JOURNAL, "journal")],
)
@pytest.mark.parametrize("name", ["trace.csv", "trace.csv.gz"])
def test_the_format_is_guessed_from_the_header(tmp_path: Path, text: str, form: str, name: str):
    assert reading.read(written(tmp_path, text, name)).format == form


def test_openb_tasks_carry_shares_and_models_as_a_set(tmp_path: Path):
    trace = reading.read(written(tmp_path, OPENB)).trace(42, 10 * WHOLE)
    jobs = {arrival.job.name: arrival.job for arrival in trace.arrivals}
    assert jobs["a"].task_groups()[0].request.share == 460 * MILLI
    assert jobs["b"].task_groups()[0].terms[0][0].expressions[0].values == ("V100M16", "V100M32")
    assert jobs["c"].task_groups()[0].request.cpu_only
    assert trace.tried_once


def test_inflated_copies_are_named_after_their_task(tmp_path: Path):
    names = [a.job.name for a in reading.read(written(tmp_path, OPENB), arrivals=1.3).trace(42, 10 * WHOLE).arrivals]
    assert {name.split("#")[0] for name in names} == {"a", "b", "c"}
    assert len(names) > 3
    assert len(set(names)) == len(names)


def test_muri_work_and_gangs(tmp_path: Path):
    one, two = reading.read(written(tmp_path, MURI)).trace(0, 0).arrivals
    assert one.work == pytest.approx(507.5)
    assert one.overhead == 5
    assert two.at == 60
    assert (two.job.task_groups()[0].tasks, two.job.task_groups()[0].request.gpus) == (2, 8)


def test_philly_can_be_cut_to_a_window(tmp_path: Path):
    begin = 1506816000.0
    source = reading.read(written(tmp_path, PHILLY), window=Window(begin, begin + 86400))
    assert [a.at for a in source.trace(0, 0).arrivals] == [begin]


def test_our_own_table(tmp_path: Path):
    first, second = reading.read(written(tmp_path, OWN)).trace(0, 0).arrivals
    assert (first.job.name, first.work) == ("y", 60.0)
    assert (second.job.queue, second.job.task_groups()[0].tasks) == ("research", 2)


def test_a_journal_gives_back_what_ran_and_how_long(tmp_path: Path):
    (only,) = reading.read(written(tmp_path, JOURNAL)).trace(0, 0).arrivals
    assert (only.job.task_groups()[0].request.gpus, only.work) == (2, 6.0)


def test_a_header_that_fits_nothing_is_refused(tmp_path: Path):
    with pytest.raises(Refused, match="--format"):
        reading.read(written(tmp_path, "a,b\n1,2\n"))


def test_a_missing_file_is_said(tmp_path: Path):
    with pytest.raises(NotFound):
        reading.read(tmp_path / "none.csv")


def test_a_line_that_is_wrong_is_named(tmp_path: Path):
    with pytest.raises(Refused, match=":2:"):
        reading.read(written(tmp_path, "submitted,gpus\n0,1.5\n")).trace(0, 0)


def test_fleets_by_shape_and_by_node_list(tmp_path: Path):
    shape = fleets.read("V100:8x60@10")
    assert (len(shape.nodes), len(shape.nodes[0].gpus), fleets.capacity(shape)) == (60, 8, 480 * WHOLE)
    assert dict(shape.nodes[10].domains) == {"rack": "r001"}
    listed = fleets.read(str(written(tmp_path, NODES, "nodes.csv")))
    assert [len(node.gpus) for node in listed.nodes] == [2, 8]
