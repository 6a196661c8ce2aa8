"""cuda_built() and nccl_built(): what scripts ask before and after init()."""

import horo
from horo import _built


def test_the_plug_in_beside_the_library_is_found(monkeypatch, tmp_path):
    monkeypatch.delenv("HORO_CUDA_LIBRARY", raising=False)
    monkeypatch.setattr(_built._native, "library_path", lambda: str(tmp_path / "libhoro.so"))
    assert _built.cuda_built() is False
    (tmp_path / "libhoro_cuda.so").touch()
    assert _built.cuda_built() is True
    assert _built.nccl_built() == 0


def test_the_setting_names_another_plug_in(monkeypatch, fake_cuda):
    monkeypatch.setenv("HORO_CUDA_LIBRARY", "/nowhere/libhoro_cuda.so")
    assert _built.cuda_built() is False
    horo.init(settings={"HORO_CUDA_LIBRARY": str(fake_cuda)})
    try:
        assert _built.cuda_built() is True
    finally:
        horo.shutdown()
