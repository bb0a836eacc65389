import prompty
from prompty.providers import register_model_facts

register_model_facts("compatible", "house-model-.*", temperature="refused", max_output=4096)
print([problem.code for problem in prompty.check("house.prompty")])
