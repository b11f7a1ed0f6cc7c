"""The processor of this machine, and the kernels of MKL for it."""

import platform

from paddlevit_dist.core.runtime import processor


def test_a_processor_is_that_of_the_first_core(monkeypatch, tmp_path):
    first = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: EPYC: 9\nflags\t\t: fpu avx2\n"
    file = tmp_path / "cpuinfo"
    monkeypatch.setattr(platform, "processor", lambda: "arm")
    assert processor.processor(file) == {"vendor": "", "model": "arm", "flags": []}
    other = first.replace("0", "1").replace("AMD", "Other")
    file.write_bytes(f"{first}\n{other}".replace("EPYC", "EP\udcffYC").encode("utf-8", "surrogateescape"))
    expected = {"vendor": "AuthenticAMD", "model": "EP\ufffdYC: 9", "flags": ["fpu", "avx2"]}
    assert processor.processor(file) == expected
    file.write_text("processor: 0\n")
    assert processor.processor(file) == {"vendor": "", "model": "arm", "flags": []}


def test_all_four_instruction_sets_choose_the_widest_kernels():
    widest = ["avx512f", "avx512bw", "avx512dq", "avx512vl"]
    assert processor.math_kernels({"vendor": "AuthenticAMD", "flags": widest}) == "7"
    for missing in widest:
        flags = [name for name in widest if name != missing]
        assert processor.math_kernels({"vendor": "AuthenticAMD", "flags": flags}) is None
