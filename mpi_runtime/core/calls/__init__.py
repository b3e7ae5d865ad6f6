"""The parts of a call: remote functions, actor classes and handles, options, arguments.

`@remote` makes a remote function or an actor class. Its options become a spec, which the scheduler receives once; each
`.remote()` packs the arguments and submits a call that names the spec.

- `remote_function.py`: remote functions: `.remote`, `.options`, `.map`, `.bind`
- `actor_class.py`: actor classes, and `@method`
- `actor_handle.py`: handles of actors, their methods, `get_actor`
- `signatures.py`: types of `.remote` and `.options` for type checkers
- `own_scheduler.py`: calls that bring their own scheduler, and the job inside them
- `options.py`: names and allowed values of all options
- `specs.py`: makes the spec of a function, class or method from its options
- `submitter.py`: registers the spec of a function and submits its calls
- `arguments.py`: checks and packs arguments: references become slots, the rest is serialised; arguments of gangs
- `code.py`: functions and classes as bytes
- `code_digest.py`: the hash of a function and of all code that it uses, for the journal
- `module_digest.py`: the hash of a module of the program, for the journal
- `strategies.py`: scheduling strategies
- `labels.py`: label selectors
- `placement_groups.py`: placement groups as users see them
- `runtime_env.py`: the environment of calls: variables, working directory, modules
- `mapping.py`: the results of `f.map`
- `chunks.py`: many calls of `f.map` in one task, cut by the time that they take
- `graphs.py`: graphs of bound calls: `f.bind(...)`
"""
