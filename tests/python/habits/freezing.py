"""Parameters that are frozen and unfrozen while the script runs."""


def _unfrozen_later(job, **options):
    """A backbone that is frozen when it is wrapped, and trained from the third step on."""
    model = job.net(4, 6, 6, 3)
    for param in model[0].parameters():
        param.requires_grad_(False)
    optimizer = job.wrap(job.sgd(model), model, **options)
    job.train(model, optimizer, 2)
    for param in model[0].parameters():
        param.requires_grad_(True)
    job.train(model, optimizer, 3, first=2)
    return model


def habit_frozen_when_wrapped_and_unfrozen_later(job):
    return _unfrozen_later(job)


def habit_frozen_when_wrapped_and_unfrozen_later_with_bucket_views(job):
    return _unfrozen_later(job, gradient_as_bucket_view=True)


def habit_frozen_when_wrapped_and_unfrozen_later_in_groups(job):
    return _unfrozen_later(job, num_groups=2)


def _frozen_later(job, params_of, **options):
    model = job.net(4, 6, 6, 3)
    optimizer = job.wrap(job.sgd(model), model, **options)
    for phase in range(4):
        for param in params_of(model):
            param.requires_grad_(phase % 2 == 0)
        job.train(model, optimizer, 3, first=3 * phase)
    return model


def habit_freezing_and_unfreezing_on_schedule(job):
    return _frozen_later(job, lambda model: model[0].parameters())


def habit_freezing_and_unfreezing_with_bucket_views(job):
    return _frozen_later(job, lambda model: model[0].parameters(), gradient_as_bucket_view=True)


def habit_freezing_the_last_layer(job):
    """Its gradient is the first of each backward, and the last one declared."""
    return _frozen_later(job, lambda model: model[-1].parameters())


def habit_freezing_large_parameters(job):
    """Each has a hook of its own."""
    model = job.net(150, 150, 3)
    optimizer = job.wrap(job.sgd(model, lr=0.01), model)
    for phase in range(4):
        model[0].requires_grad_(phase % 2 == 0)
        job.train(model, optimizer, 2, first=2 * phase)
    return model
