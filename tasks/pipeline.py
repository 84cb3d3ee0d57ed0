"""The registry of components of batch pipelines. The module that TASKS_COMPONENTS names declares them in it, as here:

from tasks.pipeline import components

@components.declare("Structure_Checker", "1.2", event="Structure_Checked", past=["Data_Archived"])
def check_structure(work): ...
"""

from tasks.app import coordinator
from tasks.components import Components

components = Components(coordinator)
