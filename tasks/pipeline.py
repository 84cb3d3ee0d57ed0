"""The service's components, declared by the module that the setting `components` names:

from tasks.pipeline import components

@components.declare("Structure_Checker", "1.2", event="Structure_Checked", past=["Data_Archived"])
def check_structure(work): ...
"""

from tasks.app import coordinator
from tasks.components import Components

components = Components(coordinator)
