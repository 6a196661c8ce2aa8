"""The places inside a step of a divided optimizer at which a rank of tools/soak zero dies."""

IN_STEP = ("between", "updating", "updated", "before-step", "after-step")
AFTER_A_DEATH = tuple(
    f"{when}-{word}" for word in ("rescue", "objects", "state", "dealt") for when in ("before", "after")
)


CHUNK_BYTES = 3000  # of a gather, so that a step has several


def watch(optimizer, at):
    """Calls at(place) at each of them. before-step and after-step are those of the first chunk of a step's gather."""
    from horo.torch.sharding import layout

    layout.CHUNK_BYTES = CHUNK_BYTES

    def around(call, word=None):
        def called(*args, **options):
            name = word or args[1]
            at(f"before-{name}")
            result = call(*args, **options)
            at(f"after-{name}")
            return result

        return called

    division = optimizer._zero
    gather, update = division.gather, division.update
    gather.tensors, gather.objects = around(gather.tensors), around(gather.objects, "objects")

    def updated(step):
        update(lambda: (step(), at("updating")))
        at("updated")

    division.update = updated
    optimizer.register_step_pre_hook(lambda *_: at("between"))
