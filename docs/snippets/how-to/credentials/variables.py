import prompty

prompty.load_env()  # the nearest .env file, from the current folder upwards
prompty.load_env(prompt="answer.prompty")  # the nearest one, from the folder of a prompt upwards
